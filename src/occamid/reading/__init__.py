"""People's files become records: text, spreadsheets, MATLAB, HDF5; columns, clocks, gaps."""
