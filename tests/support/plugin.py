"""A command as another package would bring it."""

import typer

app = typer.Typer()


@app.command()
def greet(name: str) -> None:
    print(f"hello {name}")


@app.command()
def leave() -> None:
    """A second command makes it a group."""
