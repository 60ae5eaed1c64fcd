"""The paper's tables and figures, again, and two tables more: cells, the runs behind them, their records, a report.

``python -m paper reproduce`` runs what has no record yet, ``python -m paper report`` shows what the records say beside
what was published. Runs, records and their folder are those of `eans.experiments`.
"""
