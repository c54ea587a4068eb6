//! Parts of decoded requests.

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data, number_data_point},
};

pub(crate) fn all(request: &ExportMetricsServiceRequest) -> Vec<Metric> {
    request.resource_metrics[0].scope_metrics[0].metrics.clone()
}

pub(crate) fn named<'m>(metrics: &'m [Metric], name: &str) -> &'m Metric {
    let found = metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("{name} in {metrics:?}"))
}

/// Value, start and time of a counter without labels.
pub(crate) fn total(metrics: &[Metric], name: &str) -> (f64, u64, u64) {
    match &named(metrics, name).data {
        Some(Data::Sum(sum)) if sum.is_monotonic => {
            let point = &sum.data_points[0];
            let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                panic!("{point:?}");
            };
            (value, point.start_time_unix_nano, point.time_unix_nano)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn value<'a>(attributes: &'a [KeyValue], key: &str) -> &'a Value {
    let found = attributes.iter().find(|it| it.key == key);
    let found = found.unwrap_or_else(|| panic!("{key} in {attributes:?}"));
    found.value.as_ref().unwrap().value.as_ref().unwrap()
}

pub(crate) fn string(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Value::StringValue(value) => value.clone(),
        other => panic!("{other:?}"),
    }
}
