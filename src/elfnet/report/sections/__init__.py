"""One file per part of the page, each a function from a run's record to markup."""
