//! The one-block ZAP.
