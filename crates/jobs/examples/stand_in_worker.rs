//! A worker that speaks the protocol of Python workers without Python; the tests start it.

fn main() -> std::io::Result<()> {
    phalanx_jobs::builtin::python::stand_in_worker()
}
