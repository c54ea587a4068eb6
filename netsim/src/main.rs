//! temporary
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let source = netsim::Source::find(&a[1]).unwrap();
    let e = source
        .experiment(a.get(2).map(String::as_str), None, None)
        .unwrap();
    let o = netsim::run(&e);
    let mean = o.flows.iter().filter_map(|f| f.fct_ns).sum::<u64>() as f64 / o.flows.len() as f64;
    println!(
        "{:?} took {:?} {} Mhops/s mean fct {}",
        o.totals,
        o.took,
        o.totals.hops as f64 / o.took.as_secs_f64() / 1e6,
        mean
    );
}
