"""A tiny job for the command line: who uses the same one shares its compiled programs."""

from occamid.identification.options import Options

OPTIONS = Options(
    effort="quick",
    network="mlp",
    hidden=(3,),
    lam=(1e-3, 2e-3),
    restarts=2,
    epochs=5,
    cycles=2,
    input_lags=4,
    output_lags=2,
    seed=7,
)
TINY = """\
example = "hairdryer-twin"

[options]
effort = "quick"
network = "mlp"
hidden = [3]
lam = [1e-3, 2e-3]
restarts = 2
epochs = 5
cycles = 2
input_lags = 4
output_lags = 2
seed = 7
"""
