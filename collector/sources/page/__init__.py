"""A metrics page: lines to samples, series and buckets."""
