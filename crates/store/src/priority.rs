//! Work that nobody waits for steps back from the processor.

/// How far. A thread that serves clients then gets the processor first, and this one still gets along.
const NICE_STEPS: i32 = 10;

/// Lowers the priority of this thread, for as long as it lives. Where the system does not let it, it stays as it is.
pub fn lower() {
    // On Linux each thread has a priority of its own; elsewhere the call would concern everybody.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE_STEPS);
}
