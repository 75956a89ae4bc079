"""The private parts of other libraries that vitnas uses exist, behave as expected, and are listed."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import EMAHook
from mmengine.optim import OptimWrapper
from mmengine.runner import BaseLoop, Runner

from tests.supernets import UNIFORM, supernet_config
from vitnas_core.integration import PRIVATE_NAMES, heads, metrics, runner, steps

ROOT = Path(__file__).parents[2]
OURS = ('vitnas_core', 'tools', 'projects')
PUBLIC = {'_asdict', '_fields', '_make', '_replace'}
"""Of named tuples, whose fields could have any other name."""


@pytest.fixture
def built(tmp_path: Path) -> Runner:
    cfg = supernet_config(tmp_path, UNIFORM, max_epochs=1)
    cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    return Runner.from_cfg(cfg)


def test_runners_have_them(built: Runner) -> None:
    for name in ('_load_from', '_resume', '_has_loaded', '_train_loop', '_test_dataloader', '_randomness_cfg'):
        assert hasattr(built, name), name
    for name in ('_ema_started', '_swap_ema_parameters'):
        assert hasattr(EMAHook, name), name


def test_what_is_loaded(built: Runner) -> None:
    assert runner.load_from(built) is None and not runner.is_resuming(built) and not runner.has_loaded(built)
    built._load_from, built._resume = 'supernet.pth', True
    assert runner.load_from(built) == 'supernet.pth' and runner.is_resuming(built)
    runner.do_not_resume(built)
    assert not runner.is_resuming(built)


def test_what_is_not_built_yet(built: Runner) -> None:
    assert not runner.train_loop_is_built(built)
    built.train_loop  # noqa: B018  (it is built here)
    assert runner.train_loop_is_built(built)
    assert runner.test_dataloader(built) is None


def test_seeds(built: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.given_seed(built) == runner.run_seed(built) == 3
    monkeypatch.setattr(runner, 'get_rank', lambda: 3)
    built._randomness_cfg = dict(seed=3, diff_rank_seed=True)
    built._seed = 6  # what mmengine gives rank 3
    assert runner.run_seed(built) == 3
    built._randomness_cfg = {}
    assert runner.given_seed(built) == 0


def test_averaged_weights(built: Runner) -> None:
    built.call_hook('before_run')
    head = next(built.model.head.parameters())
    before = head.detach().clone()
    with torch.no_grad():
        head += 1
    with runner.averaged_weights(built):
        assert torch.equal(head, before)
    assert torch.equal(head, before + 1)


def test_losses_of_a_step_count_once() -> None:
    layer = torch.nn.Linear(2, 1)
    optim = OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1), accumulative_counts=2)
    optim.initialize_count_status(layer, 0, 4)
    for last in (False, False, True):
        steps.add_gradients(optim, layer(torch.ones(1, 2)).sum(), last)
    assert optim.inner_count == 1 and layer.bias.grad.item() == 1.5  # three of them, each divided by two
    assert steps.progress(optim) == 0.0
    steps.add_gradients(optim, layer(torch.ones(1, 2)).sum(), True)
    assert steps.progress(optim) == 0.25
    assert steps.progress(OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1))) is None


class Mean(BaseMetric):
    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += data_samples

    def compute_metrics(self, results: list) -> dict[str, float]:
        return {'mean': sum(float(value) for value in results) / len(results)}


def test_values_of_one_process() -> None:
    metric = Mean()
    metric.process(None, [torch.tensor(1.0), torch.tensor(3.0)])
    assert metrics.own_values(metric) == {'mean': 2.0}
    assert metrics.own_values(metric, metric.results[1:]) == {'mean': 3.0}
    assert metrics.annotated_images(metric) is None


def test_spelling_of_vqa() -> None:
    assert metrics.spell_as_vqa('The two, cats!') == '2 cats'


def test_heads_that_predict_a_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmpretrain.models import ClsHead, LinearClsHead, MultiLabelLinearClsHead

    head = LinearClsHead(10, 8)
    assert heads.predicts_softmax(head) and not heads.predicts_softmax(MultiLabelLinearClsHead(10, 8))
    assert not heads.predicts_softmax(None) and not heads.predicts_softmax(torch.nn.Linear(8, 10))
    for name in ('predict', '_get_predictions'):
        other = type('Other', (LinearClsHead,), {name: lambda self, *_: None})
        assert not heads.predicts_softmax(other(10, 8)), name
    monkeypatch.delattr(ClsHead, '_get_predictions')
    assert not heads.predicts_softmax(head)


# new uses are noticed


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.strip('_') != '' and name.startswith('_') and not name.startswith('__')


def is_own(node: ast.AST) -> bool:
    """Whether an expression is an attribute of ``self`` or ``cls``."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ('self', 'cls')


def set_by(tree: ast.AST) -> set[str]:
    """Attributes that methods set on their object."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node))
    return {node.attr for node in found if isinstance(node.ctx, ast.Store)}


def defined(tree: ast.AST) -> set[str]:
    """Names that a module defines: functions, classes, variables, attributes of its objects."""
    nodes = list(ast.walk(tree))
    names = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | variables | set_by(tree)


def foreign(tree: ast.AST, inherited: set[str]) -> Iterator[str]:
    """Private names that a module uses and does not define, nor inherits from classes of ours."""
    known = defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if node.attr not in (known | inherited if is_own(node) else known):
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or '').split('.')[0] not in OURS:
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            of_names = node.func.id in ('getattr', 'setattr', 'hasattr', 'delattr')
            name = node.args[1].value if of_names and isinstance(node.args[1], ast.Constant) else None
            if is_private(name) and name not in known:
                yield name


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.Name]:
    """The variables that an assignment sets."""
    places = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [place for place in places if isinstance(place, ast.Name)]


def overridden(cls: type, tree: ast.ClassDef) -> Iterator[str]:
    """Private names of foreign parents that a class defines or uses."""
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node)}
    used |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    used |= {name.id for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for name in targets(node)}
    for parent in cls.__mro__[1:]:
        if parent.__module__.split('.')[0] not in (*OURS, 'builtins', 'abc', 'typing'):
            own = set(vars(parent))
            with contextlib.suppress(OSError, TypeError):  # a class that is not written in Python
                own |= set_by(ast.parse(textwrap.dedent(inspect.getsource(parent))))
            yield from (name for name in sorted(used & own) if is_private(name))


def private_uses() -> Iterator[tuple[str, str]]:
    """(Name, file) of every private name of another library that is used outside of ``integration``."""
    paths = [path.relative_to(ROOT) for part in OURS for path in sorted((ROOT / part).rglob('*.py'))]
    code = [path for path in paths if not {'configs', 'integration'} & set(path.parts)]
    trees = {path: ast.parse((ROOT / path).read_text()) for path in code}
    inherited = set[str]().union(*map(defined, trees.values()))
    for where, tree in trees.items():
        yield from ((name, str(where)) for name in foreign(tree, inherited))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
        if classes and where.parts[0] != 'tools':  # those are scripts, and extend nothing
            module = importlib.import_module('.'.join(where.with_suffix('').parts).removesuffix('.__init__'))
            for node in classes:
                yield from ((name, str(where)) for name in overridden(getattr(module, node.name), node))


def test_other_private_names_are_not_used() -> None:
    found = {(name, where) for name, where in private_uses() if name not in PUBLIC}
    more = sorted(f'{where} uses {name}' for name, where in found if name not in PRIVATE_NAMES)
    assert not more, f'{more}: put it into vitnas_core/integration, with its reason and guard'
    assert not set(PRIVATE_NAMES) - {name for name, _ in found}, 'nothing uses it any more'


def test_uses_are_noticed() -> None:
    code = """
from torch._utils import _rebuild
from vitnas_core.search.loop import _read_table
runner._resume = getattr(runner, '_hooks')
class A(Hook):
    _mine = 0
    def f(self):
        self._kept = self._mine + other._kept + other.__dict__ + self._inherited
"""
    assert sorted(foreign(ast.parse(code), {'_inherited'})) == ['_hooks', '_rebuild', '_resume']


class Loop(BaseLoop):
    def __init__(self, found: Any) -> None:
        self._runner, self._own = found

    def run(self) -> None:
        """Do nothing."""


def test_what_parents_set_is_theirs() -> None:
    (tree,) = ast.parse(inspect.getsource(Loop)).body
    assert isinstance(tree, ast.ClassDef) and list(overridden(Loop, tree)) == ['_runner']
