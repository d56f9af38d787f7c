"""Models of other people's, each in one file, run in an environment of their own.

Their libraries ask for other versions than occamid's: nothing here imports occamid or a package
that does.  ``suite.others`` writes what a peer may know into a file, starts ``answer`` in that
environment (``make peers`` sets it up), and judges what comes back.
"""

from collections.abc import Mapping

# What each is, and the distributions whose versions stand beside its results.
NAMES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **{
        f"frols-{k}": (f"SysIdentPy, FROLS polynomial of degree {k}", ("sysidentpy", "numpy"))
        for k in (1, 2, 3)
    },
    "jax-sysid": ("jax-sysid, nonlinear state space", ("jax-sysid", "jaxopt", "jax", "flax")),
    "gru": ("GRU, plain, in JAX", ("jax", "optax", "numpy")),
}
