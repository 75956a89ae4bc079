"""The study protocol: runs × seeds as resumable steps, one table with intervals, rankings against a truth."""
