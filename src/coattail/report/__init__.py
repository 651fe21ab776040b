"""One self-contained page about a run: collected from data/, written as data/report/report.html."""
