"""Run a study and tabulate it: ``python projects/studies/study.py STUDY.py [--work-dir DIR] [--jobs N]``.

A study compares runs over several seeds. STUDY.py is a config:

    seeds = [0, 1, 2]
    baseline = 'uniform'                                    # the run to compare with
    measures = {'train.accuracy/top1': 'accuracy (%)'}      # 'STEP.MEASURE' → its name in the table
    runs = [
        ('uniform', 'configs/a.py', {}),                    # (name, config, overrides): one training
        dict(name='sandwich', steps=[                       # or steps, in order
            dict(name='supernet', config='configs/a.py', overrides={'train_cfg.max_epochs': 8}),
            dict(name='search', config='configs/b.py', overrides={'load_from': '{supernet.checkpoint}'}),
            dict(name='score', script='tools/x.py', args=['{search}/best_arch.json', '--out', '{dir}/measures.json']),
        ]),
    ]
    shared = [dict(name='truth', script=…, args=[…, '--jobs', '{jobs}'])]   # steps that run once, before all runs

A step with a config runs tools/train.py. Each step runs in its own process and folder, with the seed of its run. Its
measures are those of its last validation, or what the script wrote to ``{dir}/measures.json``. Finished steps are never
repeated: kill the study at any time and start it again. After every run the work dir gets results.csv, table.csv,
table.md, plot.png and, if something was trained, curves.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

from projects.studies.studylib.execute import execute
from projects.studies.studylib.plan import Study
from projects.studies.studylib.report import write_report
from projects.studies.studylib.results import STARTED, Job, list_jobs
from vitnas_core.errors import VitnasError


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('study', type=Path, help='study file')
    parser.add_argument('--work-dir', type=Path, help='where results go; defaults to work_dirs/STUDY')
    parser.add_argument('--jobs', type=int, default=1, help='number of runs at once; defaults to 1')
    parser.add_argument('--seeds', type=int, nargs='+', help="instead of the study's own")
    parser.add_argument('--dry-run', action='store_true', help='print finished steps and those that would run')
    options = parser.parse_args(args)
    if options.jobs < 1:
        parser.error(f'--jobs should be at least 1, but got {options.jobs}')
    return options


def describe(job: Job) -> str:
    """Describe a step in one line: done, begun or to run."""
    state = 'done' if job.result() is not None else 'begun' if (job.folder / STARTED).is_file() else 'to run'
    what = job.step.config or ' '.join(job.step.args)
    changes = ', '.join(f'{name}={value}' for name, value in job.step.overrides.items())
    return f'{state:7}{job.run.title}: {job.step.name}: {job.step.script} {what} {changes}'.rstrip()


def main(args: list[str] | None = None) -> int:
    """Run a study.

    Returns:
        The exit code: 1 if a run failed.
    """
    options = parse_args(args)
    work_dir = (options.work_dir or Path('work_dirs') / options.study.stem).resolve()
    try:
        study = Study.from_file(options.study, options.seeds)
        runs = list_jobs(study, work_dir)
        if options.dry_run:
            print('\n'.join(describe(job) for steps in runs for job in steps))
            return 0
        failures = execute(runs, work_dir, options.jobs, lambda: write_report(study, runs, work_dir))
        print(write_report(study, runs, work_dir))
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
    except KeyboardInterrupt:
        print('\nstopped; the same command goes on from here')
        return 130
    for failure in failures:
        print(f'failed: {failure.job.run.title}, step {failure.job.step.name} ({failure.reason}): {failure.log}')
    print(f'results: {work_dir}')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
