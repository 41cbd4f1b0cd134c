"""The rows, the data sets and the tables of the experiment on DomainBed's data."""
