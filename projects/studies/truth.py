"""Train architectures of a space alone and keep their scores: ``python projects/studies/truth.py CONFIG --out FILE``.

CONFIG is a recipe: a training config whose backbone has a space, or gets one by --space. The architectures are spread
over the range of costs and include the smallest and the largest. Each is trained from scratch by the same recipe, once
per seed. Trainings are kept in FILE's folder and never repeated: kill it at any time and start it again.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

import vitnas_core  # noqa: F401  (before mm: it repairs imports)
from projects.studies.studylib.execute import execute
from projects.studies.studylib.plan import Step, Study, StudyError
from projects.studies.studylib.results import list_jobs
from projects.studies.studylib.truth import TrueArch, Truth, choose_archs
from vitnas_core import zoo
from vitnas_core.backbones import ElasticBackbone
from vitnas_core.costs import Cost
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation.pricing import pricer
from vitnas_core.model_configs import backbone_of, fixed_config
from vitnas_core.spaces import Arch


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', type=Path, help='recipe')
    parser.add_argument('--space', help="zoo name or file of a space; defaults to the recipe's")
    parser.add_argument('--input-size', type=int, help="image side for costs; defaults to that of the recipe's images")
    parser.add_argument('--num', type=int, default=20, help='number of architectures; defaults to 20')
    parser.add_argument('--seed', type=int, default=0, help='seed of the draw; defaults to 0')
    parser.add_argument('--seeds', type=int, nargs='+', default=[0], help='seeds of the trainings; defaults to 0')
    parser.add_argument('--measure', default='accuracy/top1', help='in the last validation; defaults to accuracy/top1')
    parser.add_argument('--out', type=Path, required=True, help='file to write')
    parser.add_argument('--jobs', type=int, default=1, help='trainings at once; defaults to 1')
    return parser.parse_args(args)


def read_model(config: Config, space: str | None) -> dict[str, Any]:
    """Return the model of a recipe with a space.

    Raises:
        StudyError: The recipe has no space and none is given.
    """
    model = copy.deepcopy(config.model.to_dict())
    if space is not None:
        model['backbone'].pop('arch', None)
        model['backbone']['space'] = zoo.load_space(space).to_dict()
    if 'space' not in model.get('backbone', {}):
        raise StudyError('model.backbone of the recipe has no space; give one by --space')
    return model


def make_price(
    config: Config, model: Mapping[str, Any], backbone: ElasticBackbone, input_size: int | None = None
) -> Callable[[Arch], Cost]:
    """Return a function that prices architectures for the images and the head of a recipe.

    Args:
        config: The recipe.
        model: Its model, with the space.
        backbone: The backbone of the model.
        input_size: Image side. Defaults to None: that of the recipe's images.
    """
    return partial(pricer({**config, 'model': model}, backbone.price), size=input_size)


def recipe_digest(config: Config) -> str:
    """Digest everything in a recipe except the architecture and the seed."""
    data = {**config.to_dict(), 'randomness': None, 'work_dir': None}
    data['model'] = {**data['model'], 'backbone': {**data['model']['backbone'], 'space': None, 'arch': None}}
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]


def main(args: list[str] | None = None) -> int:
    """Make a truth file.

    Returns:
        The exit code: 1 if a training failed.
    """
    options = parse_args(args)
    try:
        return make_truth(options)
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None


def make_truth(options: argparse.Namespace) -> int:
    """Choose architectures, train them and write their scores.

    Raises:
        StudyError: The file belongs to another recipe, or a training lacks the measure.
    """
    if not options.config.is_file():
        raise StudyError(f'there is no config file {options.config}')
    config = Config.fromfile(options.config)
    recipe = recipe_digest(config)
    if options.out.is_file() and Truth.from_file(options.out).recipe != recipe:
        raise StudyError(f'{options.out} was made by another recipe; give another --out, or remove it')
    model = read_model(config, options.space)
    backbone = backbone_of(model)
    price = make_price(config, model, backbone, options.input_size)
    archs = choose_archs(backbone.space, price, options.num, np.random.default_rng(options.seed))
    runs = {}
    for arch in archs:
        overrides = {'model': {'_delete_': True, **fixed_config(model, arch)}}
        runs[arch.digest()] = (Step('train', config=str(options.config.resolve()), overrides=overrides),)
    study = Study('truth', (), runs, tuple(options.seeds), next(iter(runs)), {})
    work_dir = options.out.resolve().parent / 'trainings'
    jobs = list_jobs(study, work_dir)
    failures = execute(jobs, work_dir, options.jobs)
    for failure in failures:
        print(f'failed: {failure.job.run.title} ({failure.reason}): {failure.log}')
    if failures:
        return 1
    results = {(steps[0].run.name, steps[0].run.seed): steps[0].result() or {} for steps in jobs}
    entries = [_entry(arch, price(arch), results, options) for arch in archs]
    Truth(recipe, options.measure, tuple(entries)).save(options.out)
    print(f'{len(entries)} architectures: {options.out}')
    return 0


def _entry(arch: Arch, cost: Cost, results: dict[tuple[str, int], dict], options: argparse.Namespace) -> TrueArch:
    scores = {}
    for seed in options.seeds:
        measures = results[arch.digest(), seed]['measures']
        if options.measure not in measures:
            raise StudyError(f'--measure is {options.measure}; the validation gives {", ".join(measures) or "nothing"}')
        scores[seed] = measures[options.measure]
    return TrueArch(arch, cost.macs, cost.params, scores)


if __name__ == '__main__':
    sys.exit(main())
