//! The fast lane: plain records to rows, rows to Avro. Everything else stays in Python, which is also its oracle.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

mod columns;
mod encode;
mod envelope;
mod json;
mod lane;
mod lines;
mod records;
mod seal;
mod shapes;
mod texts;
mod times;
mod types;

/// CRC-32 as of zlib, several times as fast as most builds of it; `before` is that of what stands before.
#[pyfunction]
#[pyo3(signature = (data, before = 0, /))]
fn crc32(data: PyBackedBytes, before: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&data);
    hasher.finalize()
}

#[pymodule]
fn log_partitioner_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<columns::Columns>()?;
    module.add_class::<lane::Lane>()?;
    module.add_class::<lane::Poll>()?;
    module.add_class::<lane::Taken>()?;
    module.add_class::<seal::Sealer>()?;
    module.add_class::<lines::Lines>()?;
    module.add_class::<texts::Texts>()?;
    module.add_class::<types::Types>()?;
    module.add_function(wrap_pyfunction!(seal::in_order, module)?)?;
    module.add_function(wrap_pyfunction!(crc32, module)?)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))
}
