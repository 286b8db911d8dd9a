//! Names in texts that are made to be difficult.

use super::*;
