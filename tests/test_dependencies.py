"""Dependencies point one way: packages import only what the table allows, and nothing imports projects or tools."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / 'vitnas_core'

# Package or module of vitnas_core → what it may import at module level, besides itself. A row names rows above it only,
# so there are no cycles. `*` stands for one name; the first row that matches a module or one of its packages counts.
# No row names `visualization`: what draws a picture imports it inside a function.
LAYERS = {
    'version': '',
    'errors': '',
    'utils': 'errors',
    'registry': '',
    'spaces': 'errors',
    'zoo': 'errors spaces',
    'costs': 'errors utils spaces',
    'families.*.arch': 'errors utils spaces costs',
    'integration': 'errors utils registry',
    'elastic': 'errors utils costs',
    'checkpoints': 'errors utils elastic integration',
    'backbones': 'errors utils registry spaces zoo costs integration elastic checkpoints',
    'families': 'errors utils registry spaces zoo costs families.*.arch elastic checkpoints backbones',
    'necks': 'errors registry elastic',
    'auto': 'errors registry integration backbones families necks',
    'model_configs': 'errors spaces zoo integration backbones auto',
    'extract': 'errors spaces zoo integration backbones auto model_configs',
    'launch': 'errors registry integration',
    'latency': 'errors utils spaces costs elastic backbones',
    'datasets': 'errors utils registry',
    'evaluation': 'errors utils registry spaces costs integration elastic checkpoints backbones auto model_configs'
    ' datasets',
    'training': 'errors utils registry spaces zoo costs integration elastic checkpoints backbones model_configs'
    ' datasets evaluation',
    'workers': 'errors utils registry spaces integration model_configs launch evaluation',
    'search': 'errors utils registry spaces zoo costs integration elastic checkpoints backbones auto'
    ' model_configs extract launch latency datasets evaluation training workers',
    'visualization': 'version errors utils spaces elastic evaluation search',
    '__init__': 'version registry integration checkpoints backbones families auto',
}
WITHOUT_TORCH = ('errors', 'spaces', 'zoo', 'families.*.arch', 'costs')
"""What reads, draws and prices architectures."""
OUTSIDE = ('projects', 'tools', 'tests')

MODULES = {
    '.'.join(path.relative_to(CORE).with_suffix('').parts).removesuffix('.__init__'): path
    for path in sorted(CORE.rglob('*.py'))
}


def row_of(module: str) -> str:
    """The row of the table that a module, such as ``search.journal``, belongs to."""
    parts = module.split('.')
    packages = ['.'.join(parts[:end]) for end in range(1, len(parts) + 1)]
    found = [row for row in LAYERS if any(fnmatchcase(p, row) and p.count('.') == row.count('.') for p in packages)]
    assert found, f'vitnas_core.{module} has no row in LAYERS; say what it may import'
    return found[0]


def at_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that an import of the module runs, those for type checkers left out."""
    for node in body:
        yield node
        if isinstance(node, (ast.Try, ast.With, ast.If)) and not (
            isinstance(node, ast.If) and ast.unparse(node.test).endswith('TYPE_CHECKING')
        ):
            yield from at_module_level(node.body)
            yield from at_module_level(getattr(node, 'orelse', []))


def imported(path: Path, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The absolute names that import statements ask for: ``vitnas_core.spaces.Arch``, ``torch``."""
    package = path.relative_to(ROOT).parent.parts
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield from ('.'.join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def own(name: str) -> str:
    """The module of vitnas_core that an absolute name lies in."""
    parts = name.split('.')[1:]
    while parts and '.'.join(parts) not in MODULES:
        parts.pop()
    return '.'.join(parts) or '__init__'


def test_the_table_has_no_cycles() -> None:
    rows = list(LAYERS)
    for i, row in enumerate(rows):
        assert set(LAYERS[row].split()) <= set(rows[:i]) - {'visualization'}, f'{row} should name rows above it only'


def test_imports_follow_the_table() -> None:
    wrong = []
    for module, path in MODULES.items():
        row = row_of(module)
        for name in imported(path, at_module_level(ast.parse(path.read_text()).body)):
            if name.startswith('vitnas_core') and row_of(own(name)) not in (row, *LAYERS[row].split()):
                wrong.append(f'{row} should not import {name} ({path.relative_to(ROOT)})')
    assert not wrong, '\n'.join(wrong)


def test_nothing_uses_projects_and_tools() -> None:
    """Neither by an import, wherever it stands, nor by a name in a string, such as a location of a registry."""
    for path in MODULES.values():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        names = [*imported(path, nodes), *(text for text in strings if text.replace('.', '').isidentifier())]
        assert not [name for name in names if name.split('.')[0] in OUTSIDE], path


def test_no_project_uses_another() -> None:
    for path in sorted((ROOT / 'projects').glob('*/**/*.py')):
        project = path.relative_to(ROOT / 'projects').parts[0]
        for name in imported(path, ast.walk(ast.parse(path.read_text()))):
            assert not name.startswith(('tests.', 'tools.')), f'{path} imports {name}'
            assert not name.startswith('projects.') or name.split('.')[1] in (project, 'read_config'), path


def test_architectures_need_no_torch() -> None:
    for module, path in MODULES.items():
        if row_of(module) in WITHOUT_TORCH:
            names = imported(path, at_module_level(ast.parse(path.read_text()).body))
            assert not {name.split('.')[0] for name in names} & {'torch', 'mmengine', 'mmcv', 'timm'}, path


def test_choices_and_costs_of_families_import_without_torch() -> None:
    """Read and priced where torch is not even installed; the package's own start, which needs it, is left out."""
    rooms = [module for module in MODULES if fnmatchcase(module, 'families.*.arch')]
    assert len(rooms) >= 5
    code = (
        'import sys, types\n'
        'sys.modules["torch"] = sys.modules["mmengine"] = None\n'
        'core = sys.modules["vitnas_core"] = types.ModuleType("vitnas_core")\n'
        f'core.__path__ = [{str(CORE)!r}]\n'
        f'import {", ".join(f"vitnas_core.{room}" for room in rooms)}\n'
        'from vitnas_core import zoo\n'
        'from vitnas_core.families.autoformer import arch\n'
        'network = arch.SCHEMA.read(zoo.entry("autoformer-tiny").arch)\n'
        'settings = dict(img_size=(224, 224), patch_size=16, position="absolute", reach=14, scaling=False)\n'
        'assert arch.cost(network, (224, 224), 1000, **settings).params == zoo.entry("autoformer-tiny").params\n'
    )
    subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)


def test_importing_the_core_imports_neither_pictures_nor_projects() -> None:
    code = 'import sys, vitnas_core.search, vitnas_core.training; print(*sys.modules)'
    found = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {'vitnas_core.visualization', 'projects', 'tools', 'tokenizers'} & set(found.split())


def test_every_family_has_a_room_and_its_weights_wait_for_a_conversion() -> None:
    """A room has arch.py and weights.py; building networks imports no foreign layout."""
    rooms = {module.split('.')[1] for module in MODULES if module.count('.') == 2 and module.startswith('families.')}
    assert len(rooms) >= 5
    for room in rooms:
        assert {f'families.{room}.arch', f'families.{room}.weights'} <= MODULES.keys(), room
    code = 'import sys, vitnas_core.families.catalog; print(*sys.modules)'
    found = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    layouts = {f'vitnas_core.families.{room}.weights' for room in rooms}
    assert not (layouts | {'vitnas_core.backbones.foreign'}) & set(found.split())
