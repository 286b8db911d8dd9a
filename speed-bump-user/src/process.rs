//! Processes: identity, mappings, namespaces, children, and what forbids attaching.
