//! The only code that talks to the operating system about block I/O.
