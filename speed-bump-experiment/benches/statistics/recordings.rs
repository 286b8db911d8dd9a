//! The noise of real services, recorded with `sweep --record`.

/// The name of each recording, and its text.
pub(crate) const RECORDINGS: [(&str, &str); 8] = [
    ("recorded: Celery, busy machine", include_str!("../recordings/celery_busy.txt")),
    ("recorded: FastAPI, busy machine", include_str!("../recordings/fastapi_busy.txt")),
    ("recorded: Flask, busy machine", include_str!("../recordings/flask_busy.txt")),
    ("recorded: GPT-2, busy machine", include_str!("../recordings/gpt2_busy.txt")),
    ("recorded: Llama, busy machine", include_str!("../recordings/llm_busy.txt")),
    ("recorded: open loop, busy machine", include_str!("../recordings/open_loop_busy.txt")),
    ("recorded: pandas, busy machine", include_str!("../recordings/pandas_busy.txt")),
    ("recorded: pool, busy machine", include_str!("../recordings/pool_busy.txt")),
];
