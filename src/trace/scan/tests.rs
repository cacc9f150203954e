//! Checks the scanner.
