"""Collects all hand-written modules, by name."""

import modules_layers  # noqa: F401  (each registers its modules)
import modules_naming  # noqa: F401
import modules_sharing  # noqa: F401
from spec import SPECS, WIDTH, Spec  # noqa: F401  (used by those who import this)
