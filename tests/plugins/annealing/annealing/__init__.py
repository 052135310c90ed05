"""Define the record of simulated annealing as a search method; the searcher is imported when a search is created."""

from daylight.search import MethodOption, SearchMethod

METHOD = SearchMethod(
    name="annealing",
    summary="steps around the best trial, shorter and shorter ones",
    factory="annealing.searcher:make",
    options=(
        MethodOption(name="temperature", type="float", default=0.5, least=0.01, most=1.0, summary="the first step"),
    ),
    trials=12,
    learns=True,
)
