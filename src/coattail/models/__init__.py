"""Everything with fit, predict, save and load: linear, deep, and models of rankings."""
