"""The study protocol: runs × seeds as resumable steps, one table with intervals, and rankings against a truth."""
