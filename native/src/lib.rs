//! The fast lane: plain records to rows, rows to Avro. Everything else stays in Python, which is also its oracle.

use pyo3::prelude::*;

mod encode;
mod envelope;
mod json;
mod lane;
mod records;
mod shapes;
mod times;

#[pymodule]
fn log_partitioner_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<lane::Lane>()?;
    module.add_class::<lane::Poll>()?;
    module.add_class::<lane::Taken>()?;
    module.add_class::<encode::Sealer>()?;
    module.add_class::<encode::Written>()?;
    module.add_function(wrap_pyfunction!(encode::in_order, module)?)?;
    module.add_function(wrap_pyfunction!(encode::runs, module)?)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))
}
