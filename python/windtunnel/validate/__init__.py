"""The validation board: predictions against published measurements, table by table.

A table (`tables/`) reads measured rows and turns each into an ordinary scenario over a system (`data/systems`);
`predict` runs every distinct scenario once; `score` compares. Rows that cannot be predicted are excluded with a reason,
rows that a constant was fitted on are never scored.
"""

from windtunnel.validate.board import Board, validate
from windtunnel.validate.rows import Excluded, Row, Table
from windtunnel.validate.score import Figures, Score
from windtunnel.validate.tables import BOARD, NAMES

__all__ = ["BOARD", "NAMES", "Board", "Excluded", "Figures", "Row", "Score", "Table", "validate"]
