"""Makes saves that are wrong on purpose, which the judge must detect."""

import argparse
from pathlib import Path

import cases
import modules
from rounds import Round, Settings


def swap_two_tensors(folder: Path) -> None:
    files = sorted((folder / "initializers").iterdir())
    first, second = (path for path in files if path.stat().st_size == 4 * modules.WIDTH**2)
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


def blind_judgements(arguments) -> list:
    """Return what the judge did not find: a lenient tool, a deaf one, and two tensors that changed places."""
    trials = [
        ("a missing weight is let pass", "--partial --unmatched skip", "one missing", None, cases.ACCEPTED),
        ("a float key is let pass", "--unmatched skip", "a float key", None, cases.ACCEPTED),
        ("a prefix is not understood", "--prefix ''", "prefix module", None, cases.LOST),
        ("two tensors are swapped", "", "fit", swap_two_tensors, cases.NUMBERS),
    ]
    blind = []
    for what, sabotage, name, tamper, expected in trials:
        chosen = {"sabotage": sabotage, "damage": name, "mode": "plain", "only": "", "cases": 0}
        settings = Settings(argparse.Namespace(**{**vars(arguments), **chosen}))
        settings.failed_dir = settings.work_dir / "sabotaged"
        found = Round(modules.SPECS["square_linears"], 0, settings, tamper).run()
        if expected not in [verdict for *_, verdict, _ in found]:
            blind.append(f"{what}: {sorted({verdict for *_, verdict, _ in found})}")
    return blind
