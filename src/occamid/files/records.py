"""Records as a CSV file that can be read again, here and in spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from occamid.data.record import Record
from occamid.files.plain import cell_name


def records_to_csv(records: Sequence[Record]) -> str:
    """Time, inputs and outputs; an experiment column where there are several records.

    Units stand in a second row.  Times are those of the log, so that gaps stay visible.
    """
    first, several = records[0], len(records) > 1
    names = [*first.input_names, *first.output_names]
    units = [*(first.input_units or ("",) * first.u.shape[1])]
    units += first.output_units or ("",) * first.y.shape[1]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    lead, lead_units = (["experiment"], ["number"]) if several else ([], [])
    table.writerow([*lead, "time", *map(cell_name, names)])
    if any(units):
        table.writerow([*lead_units, "s", *map(cell_name, units)])
    for number, record in enumerate(records, 1):
        time = record.start + np.arange(len(record)) * record.sampling_time
        block = np.column_stack([time, record.u, record.y])
        label = [number] if several else []
        table.writerows([*label, f"{t:.12g}", *map(repr, row)] for t, *row in block.tolist())
    return text.getvalue()
