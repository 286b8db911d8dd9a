//! The helper in a Python process: what it counts, and how it comes, goes on and leaves.

mod control;
mod helper;
mod helper_calls;
mod helper_children;
mod helper_hook;
mod helper_leaving;
mod helper_list;
mod helper_main_thread;
mod helper_regions;
mod helper_retarget;
mod helper_room;
mod helper_tools;
mod helper_version;
mod hits;
