"""Write the files of one version of vitnas, which tests/test_legacy reads with every later version.

The folder ``0.1.0-7a5f76c`` was made from a clean checkout of commit 7a5f76c, on a CPU, with the packages of
requirements/tested.txt and its own copy of this file::

    cd CHECKOUT && PYTHONPATH=$PWD PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python COPY/write.py OUT

(The first weights of ViTASDeiT depended on the hash seed then.) It writes OUT with

- ``backbones/<name>``: a checkpoint of a supernet, the network that ``tools/extract_subnet.py`` cuts out of it, and
  the outputs of both, for each entry of tests/families.py;
- ``training/<name>``: checkpoints of interrupted trainings, and the rest of these trainings;
- ``searches/<name>``: the config, the journal and the results of each search;
- ``latency``: tables of ``tools/analysis/build_latency_table.py``, and their predictions;
- ``files.json``: architecture and space files; ``costs.npz.xz``: prices; ``streams.json``: digests of random draws.

Weights are small multiples of powers of two, so that xz compresses them well. This file alone documents the formats:
a config is JSON in which ``WORK_DIR`` and ``SUPERNET`` stand for paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import lzma
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

import vitnas_core  # noqa: F401  (its registries)
from tests.families import SPACES, VARIANTS, Family
from tests.supernets import UNIFORM, supernet_config
from tests.test_search.common import holdout
from tools import extract_subnet
from tools.analysis import build_latency_table
from vitnas_core.backbones import FAMILIES, elastic_backbone
from vitnas_core.spaces import Arch, SearchSpace

NUM_PRICED, NUM_VARIED = 500, 100
"""How many architectures of a space are priced: under the defaults, and under each other setting."""


def main(out: Path) -> None:
    """Write everything."""
    torch.set_num_threads(1)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)  # paths in checkpoints are relative
        write_all(out)


def write_all(out: Path) -> None:
    """Write everything, by way of the current folder."""
    write_images(out)
    for name, family in VARIANTS.items():
        write_backbone(_folder(out / 'backbones' / name), family)
    for name, config in trainings().items():
        write_training(_folder(out / 'training' / name), config)
    write_latency(_folder(out / 'latency'))
    for name, search in searches().items():
        write_search(_folder(out / 'searches' / name), search)
    write_files(out)
    write_costs(out)
    write_streams(out)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _json(path: Path, data: Any, indent: int | None = 1) -> Any:
    """Write JSON; return it as it is read."""
    text = json.dumps(data, indent=indent)
    path.write_text(text + '\n')
    return json.loads(text)


def _pack(source: Path, target: Path) -> None:
    target.write_bytes(lzma.compress(source.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


# networks


def write_images(out: Path) -> None:
    """Input images of two sizes, in sixteenths."""
    rng = np.random.default_rng(0)
    np.savez_compressed(
        out / 'images.npz', **{str(n): rng.integers(-32, 33, (2, 3, n, n), dtype=np.int8) for n in (32, 56)}
    )


def images(out: Path, size: int) -> torch.Tensor:
    """The input of a size."""
    return torch.from_numpy(np.load(out / 'images.npz')[str(size)].astype(np.float32) / 16)


def model_config(family: Family) -> dict[str, Any]:
    """A classifier of ten classes."""
    return dict(
        type='mmpretrain.ImageClassifier',
        backbone=dict(type=f'vitnas.{family.cls.__name__}', space=family.space.to_dict(), **family.settings),
        data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor', mean=[77.6] * 3, std=[95.9] * 3, num_classes=10),
        neck=dict(type='mmpretrain.GlobalAveragePooling'),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels=family.elastic().out_channels()[-1]),
    )


def write_backbone(folder: Path, family: Family) -> None:
    """A supernet's checkpoint, a network extracted from it, and outputs of both."""
    config = _json(folder / 'model.json', model_config(family))
    runner = Runner.from_cfg(supernet_config(Path(folder.name), sampler=UNIFORM, model=config))
    assert runner.train_loop  # built, not run: a checkpoint names its dataset
    _fill(runner.model)
    runner.save_checkpoint('.', 'supernet.pth', save_optimizer=False, save_param_scheduler=False)
    _pack(Path('supernet.pth'), folder / 'supernet.pth.xz')
    rng, outputs = np.random.default_rng(1), {}
    archs = [family.space.smallest(), family.space.largest(), family.space.sample(rng), family.space.sample(rng)]
    x, model = images(folder.parents[1], family.image), runner.model.eval()
    for i, arch in enumerate(archs):
        elastic_backbone(model).set_arch(arch)
        outputs.update({f'{i}_{name}': value for name, value in _outputs(model, x).items()})
    np.savez_compressed(folder / 'outputs.npz', **outputs)
    _json(folder / 'archs.json', [arch.to_dict() for arch in archs])
    _extract(folder, config, archs[2], x)


@torch.no_grad()
def _outputs(model: Any, x: torch.Tensor) -> dict[str, np.ndarray]:
    """Logits, and about 200 numbers of each map."""
    found = {'logits': model(x, mode='tensor').numpy()}
    for i, output in enumerate(model.backbone(x)):
        flat = output.flatten()
        found[f'map{i}'] = flat[:: max(1, flat.numel() // 200)].numpy()
    return found


def _extract(folder: Path, config: dict[str, Any], arch: Arch, x: torch.Tensor) -> None:
    """What ``tools/extract_subnet.py`` writes, and the config that it prints."""
    Path('arch.json').write_text(arch.to_json())
    Path('config.py').write_text(f'default_scope = {"mmpretrain"!r}\nmodel = {config!r}\n')
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        fixed = extract_subnet.main(['config.py', 'supernet.pth', 'arch.json', '--out', 'extracted'])
    line = next(line for line in text.getvalue().splitlines() if 'Pretrained' in line)
    printed = eval(line.strip().removeprefix('backbone='), dict(dict=dict))
    _json(folder / 'printed.json', printed)
    (folder / 'extracted_arch.json').write_text(Path('extracted/arch.json').read_text())
    _pack(Path('extracted/weights.safetensors'), folder / 'extracted.safetensors.xz')
    np.savez_compressed(folder / 'extracted.npz', **_outputs(fixed.eval(), x))


@torch.no_grad()
def _fill(model: torch.nn.Module) -> None:
    """Weights that differ from their beginnings and compress well."""
    generator = torch.Generator().manual_seed(0)

    def draw(shape: torch.Size, least: int, most: int) -> torch.Tensor:
        return torch.randint(least, most + 1, shape, generator=generator).float()

    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or name.startswith('data_preprocessor'):
            continue
        if name.endswith('running_var'):
            tensor.copy_(1 + draw(tensor.shape, 0, 4) / 4)
        elif tensor.ndim > 1:
            spread = (6.0 if name.startswith('head') else 1.5) / (tensor.numel() / len(tensor)) ** 0.5
            tensor.copy_(draw(tensor.shape, -2, 2) * 2.0 ** round(np.log2(spread / 1.4)))
        elif name.endswith(('bias', 'running_mean')):
            tensor.copy_(draw(tensor.shape, -3, 3) / 16)
        else:
            tensor.copy_(1 + draw(tensor.shape, -2, 2) / 8)


# trainings


def trainings() -> dict[str, tuple[dict[str, Any], int]]:
    """Configs, and the step after which each was interrupted: in the middle of an epoch."""
    sandwich = supernet_config(
        Path('WORK_DIR'),
        sampler=dict(type='vitnas.SandwichSampler', num_random=2),
        rule=dict(
            type='vitnas.Sandwich',
            distill=dict(type='vitnas.AdaptiveAlphaDivergence'),
            conflict=dict(type='vitnas.GradientProjection', start=0.3, clip_subnets=1.0),
        ),
        model={**model_config(VARIANTS['vitas_deit'])},
        optim=dict(accumulative_counts=3),
        augment=False,
        max_iters=12,
    )
    sandwich.model.backbone.update(sharing='ordinal', drop_path_rate=0.2)
    sandwich.custom_hooks = [dict(type='EMAHook', momentum=0.1)]
    space = SearchSpace.from_dict(
        dict(
            family='autoformer',
            stages=[dict(embed_dim=[16, 24], depth=[1, 2], block=dict(num_heads=[1, 2], mlp_ratio=[0.5, 1.0]))],
        )
    )
    small = Family(VARIANTS['autoformer'].cls, space, VARIANTS['autoformer'].settings)
    focus = supernet_config(
        Path('WORK_DIR'),
        sampler=dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=1e5, width=16),
        rule=dict(type='vitnas.SinglePath'),
        model=model_config(small),
        augment=False,
        max_iters=12,
    )
    learning = dict(num_archs=2, baseline=0.9, entropy=0.01, optimizer=dict(type='AdamW', lr=5e-3))
    focus.custom_hooks = [dict(type='vitnas.SamplerTrainHook', interval=4, iterations=3, **learning)]
    made = {'sandwich': (sandwich.to_dict(), 5), 'focusformer': (focus.to_dict(), 6)}
    for name, (config, stop) in made.items():
        checkpoint = dict(type='vitnas.CheckpointHook', by_epoch=False, interval=stop)
        config.update(default_hooks=dict(checkpoint=checkpoint), experiment_name=name)
    return made


class Steps(Hook):
    """Which architecture each step ended with."""

    def __init__(self) -> None:
        self.archs: list[str] = []

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        """Note it."""
        self.archs.append(elastic_backbone(runner.model).arch.digest())


def write_training(folder: Path, made: tuple[dict[str, Any], int]) -> None:
    """A whole training; the checkpoint in its middle."""
    config, stop = _json(folder / 'config.json', made[0]), made[1]
    runner, steps = Runner.from_cfg(Config({**config, 'work_dir': folder.name})), Steps()
    runner.register_hook(steps)
    runner.train()
    losses = runner.message_hub.get_scalar('train/loss').data[0].tolist()
    _json(folder / 'expected.json', dict(stop=stop, losses=losses, archs=steps.archs))
    _pack(Path(folder.name) / f'iter_{stop}.pth', folder / 'checkpoint.pth.xz')


# searches


def searches() -> dict[str, dict[str, Any]]:
    """Every loop: its config, of which supernet (``backbones/…`` or ``training/…``)."""
    evolution = dict(
        type='vitnas.EvolutionSearchLoop', population=8, parents=4, generations=4, mutations=4, crossovers=4
    )
    nsga2 = dict(type='vitnas.NSGA2SearchLoop', population=8, parents=5, generations=4)
    limit = dict(macs=(1.2e6, 3.0e6), params=(None, 2.2e5))
    table = dict(latency_table='LATENCY_TABLE')
    focus = dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=1e5, width=16)
    loops: dict[str, tuple[str, dict[str, Any]]] = {
        'random': ('autoformer', dict(type='vitnas.RandomSearchLoop', num_candidates=20, constraint=limit)),
        'random-nasvit': ('nasvit', dict(type='vitnas.RandomSearchLoop', num_candidates=10, recalibrate=1)),
        'evolution': ('autoformer', dict(evolution, constraint=limit)),
        'evolution-initial': ('vit_res', dict(evolution, initial=12, generations=3, mutation_prob=0.3)),
        'evolution-racing': ('s3', dict(evolution, racing=dict(confidence=0.5))),
        'evolution-predictor': ('vitas_twins', dict(evolution, predictor=dict(trees=5, oversample=2))),
        'halving': ('vitas_deit', dict(type='vitnas.SuccessiveHalvingLoop', num_candidates=27, factor=3)),
        'nsga2': ('autoformer-cyclic', nsga2),
        'nsga2-score': ('vitas_deit-free', dict(nsga2, cost=None)),
        'nsga2-latency': ('s3', dict(nsga2, cost='latency', **table, constraint=dict(latency=(None, 1.0)))),
        'predictor': (
            's3',
            dict(
                type='vitnas.PredictorSearchLoop', num_samples=16, num_final=6, trees=5, parents=8, mutations=20,
                crossovers=20, rounds=4,
            ),
        ),
        'sampler': (
            'focusformer',
            dict(type='vitnas.SamplerSearchLoop', sampler=focus, budgets=[4e5, 6e5], num_candidates=5),
        ),
    }  # fmt: skip
    return {name: search_config(name, *made) for name, made in loops.items()}


def search_config(name: str, supernet: str, loop: dict[str, Any]) -> dict[str, Any]:
    """The whole config of a search; 40 images in batches of ten, but 200 for racing to drop candidates."""
    training = trainings()
    model = training[supernet][0]['model'] if supernet in training else model_config(VARIANTS[supernet])
    size = VARIANTS[supernet].image if supernet in VARIANTS else 32
    priced = {} if 'sampler' in loop else dict(input_size=size, num_classes=10)
    return dict(
        supernet=supernet,
        config=dict(
            model=model,
            work_dir='WORK_DIR',
            load_from='SUPERNET',
            train_dataloader=dict(
                batch_size=10,
                num_workers=0,
                dataset=holdout(size, per_class=20 if 'racing' in loop else 4),
                sampler=dict(type='DefaultSampler', shuffle=True),
            ),
            train_cfg={'evaluator': dict(type='mmpretrain.Accuracy'), **priced, **loop},
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
            default_scope='mmpretrain',
            randomness=dict(seed=0),
            experiment_name=name,
            log_level='ERROR',
        ),
    )


def write_search(folder: Path, search: dict[str, Any]) -> None:
    """The journal and the results of a search, and where a kill in the middle of a round would leave the journal."""
    search = _json(folder / 'search.json', search)
    out, config = folder.parents[1], search['config']
    part = 'training' if search['supernet'] == 'focusformer' else 'backbones'
    packed = next((out / part / search['supernet']).glob('*.pth.xz'))
    Path('supernet.pth').write_bytes(lzma.decompress(packed.read_bytes()))
    config.update(work_dir=folder.name, load_from='supernet.pth')
    if 'latency_table' in config['train_cfg']:
        config['train_cfg']['latency_table'] = str(out / 'latency' / f'{search["supernet"]}.json')
    Runner.from_cfg(Config(config)).train()
    for file in ('history.jsonl', 'best_arch.json', 'pareto.json'):
        (folder / file).write_bytes((Path(folder.name) / file).read_bytes())
    lines = (folder / 'history.jsonl').read_bytes().splitlines(keepends=True)
    found = [json.loads(line) for line in lines[1:]]
    inside = [i for i in range(len(found) // 2, len(found)) if found[i]['generation'] == found[i - 1]['generation']]
    before = found[inside[0]]['generation']
    rows = [
        [c['id'], c['generation'], Arch.from_dict(c['arch']).digest(), c['parents'], c['share'], c['score'],
         c['complete']]
        for c in found
    ]  # fmt: skip
    _json(
        folder / 'expected.json',
        dict(
            cut_in_a_round=sum(map(len, lines[: inside[0] + 1])) + 40,
            cut_after_a_round=sum(len(line) for line, c in zip(lines[1:], found) if c['generation'] < before)
            + len(lines[0]),
            rounds_before=before,
            candidates=rows,
        ),
        indent=None,
    )


def write_latency(folder: Path) -> None:
    """Tables of two families, and what they predict for a few architectures."""
    predicted = {}
    for name in ('autoformer', 's3'):
        Path('config.py').write_text(f'default_scope = {"mmpretrain"!r}\nmodel = {model_config(VARIANTS[name])!r}\n')
        options = '--times 1 --rounds 2 --held-out 5 --threads 1 --clock cpu --input-size 32'
        table = build_latency_table.main(['config.py', '--out', str(folder / f'{name}.json'), *options.split()])
        rng = np.random.default_rng(2)
        archs = [VARIANTS[name].space.sample(rng) for _ in range(10)]
        predicted[name] = [dict(arch=arch.to_dict(), seconds=table.predict(arch)) for arch in archs]
    _json(folder / 'predicted.json', predicted, indent=None)


# architectures, spaces, prices, draws


def write_files(out: Path) -> None:
    """Architecture and space files as texts, with the digests of the architectures."""
    rng, archs, spaces = np.random.default_rng(3), [], {}
    for name, space in all_spaces():
        spaces[name] = space.to_json()
        if name.endswith('-test'):
            for arch in (space.smallest(), space.largest(), *(space.sample(rng) for _ in range(3))):
                archs.append(dict(space=name, text=arch.to_json(), digest=arch.digest()))
    _json(out / 'files.json', dict(archs=archs, spaces=spaces))


def all_spaces() -> Iterator[tuple[str, SearchSpace]]:
    """Those of the zoo and of the tests, by name."""
    yield from SPACES.items()
    for name, family in VARIANTS.items():
        if name.endswith('-free'):
            yield f'{name}-test', family.space


def varied(family: str, stages: int) -> list[dict[str, Any]]:
    """Arguments of ``cost``; the first are the defaults."""
    every = list(range(stages))
    ratios = dict(sr_ratios=[8, 4, 2, 1][-stages:])
    own: dict[str, list[dict[str, Any]]] = {
        'autoformer': [
            dict(img_size=160, patch_size=8, input_size=[160, 256]), dict(position='conditional'), dict(reach=0),
            dict(reach=5, scaling=True),
        ],
        's3': [dict(img_size=96, patch_size=2, input_size=[100, 130]), dict(out_indices=every), dict(scaling=True)],
        'vit_res': [dict(img_size=112, input_size=[112, 140]), dict(out_indices=every)],
        'nasvit': [
            dict(out_indices=[-1]), dict(out_indices=every[:2], input_size=[96, 160]), dict(official=True),
            dict(window_size=7, out_indices=[-1], input_size=[288, 224]), dict(scaling=False),
        ],
        'vitas_deit': [dict(img_size=112, input_size=112), dict(input_size=[192, 256], img_size=[192, 256])],
        'vitas_twins': [
            dict(ratios, window_size=5, input_size=[100, 130]), dict(ratios, out_indices=every),
            dict(ratios, patch_size=2, input_size=64),
        ],
    }  # fmt: skip
    common = ratios if family == 'vitas_twins' else {}
    plain = [dict(input_size=224), dict(input_size=224, num_classes=1000), dict(input_size=192, num_classes=10)]
    return [{**common, **changes} for changes in plain] + [dict(input_size=224) | changes for changes in own[family]]


def write_costs(out: Path) -> None:
    """Prices of random architectures under several settings; the architectures stand in the file.

    Of each space there are ``<space>.columns`` (JSON: for each place of an architecture its path and the values that
    occur there), ``.rows`` (indices of values, -1 for a place that an architecture lacks), ``.settings`` (JSON) and
    ``.costs``: (params, macs) of all architectures under the first setting, and of the first 100 under the others.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, space in all_spaces():
        rng = np.random.default_rng(4)
        archs = [space.sample(rng) for _ in range(NUM_PRICED)]
        places = [dict(_flat(arch.to_dict())) for arch in archs]
        paths = list(dict.fromkeys(path for place in places for path in place))
        values = {path: list(dict.fromkeys(json.dumps(p[path]) for p in places if path in p)) for path in paths}
        rows = [[values[path].index(json.dumps(p[path])) if path in p else -1 for path in paths] for p in places]
        settings = varied(space.family, len(space.stages))
        cost = FAMILIES[space.family].cost
        prices = [cost(arch, **settings[0]) for arch in archs]
        prices += [cost(arch, **one) for one in settings[1:] for arch in archs[:NUM_VARIED]]
        arrays[f'{name}.columns'] = _text([[path, *map(json.loads, values[path])] for path in paths])
        arrays[f'{name}.settings'] = _text(settings)
        arrays[f'{name}.rows'] = np.array(rows, np.int8)
        arrays[f'{name}.costs'] = np.array([(price.params, price.macs) for price in prices], np.int64)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    (out / 'costs.npz.xz').write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _flat(data: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """(path, value) of every number, word, null and empty object of JSON data."""
    if not isinstance(data, (dict, list)) or not data:
        yield path, data
        return
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from _flat(value, f'{path}/{key}')


def _text(data: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(data).encode(), np.uint8)


def write_streams(out: Path) -> None:
    """Digests of what each space draws, changes and encodes under a seed."""
    kinds = {'global': 0.3, 'stage': 0.4, 'depth': 0.4, 'block': 0.2}
    found = {}
    for name, space in all_spaces():
        rng = np.random.default_rng(5)
        drawn = [space.sample(rng) for _ in range(100)]
        found[name] = dict(
            size=str(space.size()),
            ends=_digest([space.smallest(), space.largest()]),
            sample=_digest(drawn),
            sample_spread=_digest(space.sample_spread(20, rng)),
            mutate=_digest(space.mutate(arch, 0.3, rng) for arch in drawn[:50]),
            mutate_kinds=_digest(space.mutate(arch, kinds, rng) for arch in drawn[:50]),
            cross=_digest(space.cross(a, b, rng) for a, b in zip(drawn[:50], drawn[50:])),
            encode=hashlib.sha256(
                json.dumps([space.encode(arch).tolist() for arch in drawn]).encode()
            ).hexdigest()[:16],
            after=int(rng.integers(2**31)),
        )  # fmt: skip
    _json(out / 'streams.json', found)


def _digest(archs: Iterable[Arch]) -> str:
    """A name for a list of architectures, by their JSON."""
    return hashlib.sha256('\n'.join(arch.to_json() for arch in archs).encode()).hexdigest()[:16]


if __name__ == '__main__':
    main(Path(sys.argv[1]).resolve())
