//! What the parser makes of lists of sites.

use splitter_netlink::Family;

use super::*;
use crate::tests::mistake;
use crate::{Config, ConfigError, difference};

/// Two sites; `more` are further keys of the first.
fn sites(more: &str) -> String {
    format!(
        "lan = 'eth0'\n[[site]]\nname = 'paris'\ndestinations = ['10.2.0.0/16', '2001:db8:b::/48']\n\
         short = {{ device = 'a', rate_mbit = 30 }}\n{more}\n\
         [site.long]\ntunnels = [{{ device = 'b', weight = 3 }}, {{ device = 'c' }}]\n\
         [[site]]\nname = 'oslo'\ndestinations = '10.2.3.0/24'\n\
         [site.short]\ndevice = 'd'\nrate_mbit = 20\ngateway = '192.0.2.1'\n\
         [[site.long.tunnels]]\ndevice = 'e'\ngateway = '192.0.2.5'\n"
    )
}

fn parsed(text: &str) -> Config {
    Config::parse(text, "splitter.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn devices(config: &Config) -> Vec<&str> {
    let tunnels = config.tunnels();
    tunnels.map(|(_, tunnel)| tunnel.device.as_str()).collect()
}

#[test]
fn sites_have_tunnels_and_destinations_of_their_own() {
    let config = parsed(&sites(""));
    assert_eq!(devices(&config), ["a", "d", "b", "c", "e"]);
    assert_eq!(config.destinations().map(|it| it.len()), Some(3));
    assert_eq!(config.short.slowest_rate_mbit().map(u32::from), Some(20));
    let [paris, oslo] = &config.by_site()[..] else {
        panic!("two were listed");
    };
    assert_eq!(
        (devices(paris), devices(oslo)),
        (vec!["a", "b", "c"], vec!["d", "e"])
    );
    assert_eq!(
        (paris.site_name().as_str(), oslo.site_name().as_str()),
        ("paris", "oslo")
    );
    assert!(paris.long.are_several() && !oslo.long.are_several());
    // One of several without a next hop carries no IPv6, and the other site has but IPv4 ones.
    for site in [&config, paris, oslo] {
        assert_eq!(site.families().collect::<Vec<_>>(), [Family::V4]);
    }
    let name = |(class, tunnel)| config.name_of(class, tunnel);
    let names: Vec<_> = config.tunnels().map(name).collect();
    assert_eq!(names[4], "the long tunnel e of oslo");
}

#[test]
fn destinations_of_a_site_may_be_left_out_where_the_main_table_is_followed() {
    let text = sites("").replace("destinations = '10.2.3.0/24'\n", "");
    let wrong = mistake(&text);
    assert!(wrong.contains("neither stated nor followed"), "{wrong}");
    let config = parsed(&format!("{text}[routes]\nfollow = true\n"));
    assert_eq!(config.destinations(), None);
    let stated: Vec<_> = config.sites.iter().map(|it| it.stated().len()).collect();
    assert_eq!(stated, [2, 0]);
    assert_eq!(parsed(&config.to_toml()), config);
}

#[test]
fn view_of_a_site_is_the_configuration_with_that_site_alone() {
    let config = parsed(&sites(""));
    let name = SiteName::try_from("oslo".to_owned()).unwrap();
    let view = config.of_site(&name).unwrap();
    let text = sites("");
    let (head, rest) = text.split_once("[[site]]").unwrap();
    let (_, oslo) = rest.split_once("[[site]]").unwrap();
    let alone = parsed(&format!("{head}[[site]]{oslo}"));
    // What is computed from all tunnels is not computed again.
    let handover = view.handover.clone();
    assert_eq!(*view, Config { handover, ..alone });
    assert!(config.of_site(&SiteName::default()).is_none());
}

#[test]
fn sites_written_as_a_file_mean_the_same() {
    let config = parsed(&sites(""));
    let again = parsed(&config.to_toml());
    assert_eq!(again, config, "{}", config.to_toml());
    assert_eq!(difference(&config, &again), []);
    let changes = difference(&config, &parsed(&sites("").replace("'oslo'", "'rome'")));
    let keys: Vec<_> = changes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["site"]);
}

#[test]
fn wrong_key_of_a_site_is_found_where_it_stands() {
    let wrong = mistake(&sites("colour = 1"));
    assert!(
        wrong.starts_with("splitter.toml:6: site.colour = 1: unknown key"),
        "{wrong}"
    );
    let wrong = mistake(&sites("").replace("gateway = '192.0.2.5'", "gatway = 1"));
    let expected = "splitter.toml:18: site.long.tunnels.gatway = 1: unknown key; did you mean \
                    site.long.tunnels.gateway?";
    // The other tunnel of the site has a next hop, so that this one lacks it.
    assert!(wrong.starts_with(expected), "{wrong}");
    let missing = mistake(&sites("").replace("device = 'd'\n", ""));
    assert!(
        missing.starts_with("splitter.toml:12: site.short.device: this key is required"),
        "{missing}"
    );
}

#[test]
fn every_mistake_of_every_site_is_found_in_one_go() {
    let text = sites("")
        .replace("'10.2.3.0/24'", "'10.2.3.1/24'")
        .replace("'paris'", "''");
    let error = Config::parse(&text, "splitter.toml").unwrap_err();
    assert_eq!(error.diagnostics().len(), 2, "{error}");
    assert!(matches!(error, ConfigError::Wrong(_)));
}

#[test]
fn site_may_have_a_threshold_of_its_own() {
    let config = parsed(&sites("threshold = 90"));
    assert!(config.have_sites_thresholds());
    let views = config.by_site();
    let firsts: Vec<_> = views.iter().map(|it| it.first_threshold()).collect();
    assert_eq!(firsts, [90, 40]);
    assert_eq!(config.first_threshold(), 40, "of all other destinations");
    assert!(!parsed(&sites("")).have_sites_thresholds());
    assert_eq!(parsed(&config.to_toml()), config);
    let text = sites("threshold = 90");
    let (alone, _) = text.rsplit_once("[[site]]").unwrap();
    let alone = parsed(alone);
    assert_eq!(alone.first_threshold(), 90);
    assert!(!alone.have_sites_thresholds(), "it is the only one");
}

#[test]
fn threshold_of_a_site_stands_beside_no_automatic_one() {
    let text = sites("threshold = 90") + "[flows]\nthreshold = 'auto'\n";
    let error = Config::parse(&text, "splitter.toml")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("splitter.toml:6: site.threshold = 90: "),
        "{error}"
    );
}

#[test]
fn sites_have_no_more_different_thresholds_than_the_programs_hold() {
    use splitter_policy::thresholds::Thresholds;
    let most = Thresholds::MOST_OWN;
    let site = |number: usize, threshold: usize| {
        format!(
            "[[site]]\nname = 's{number}'\ndestinations = '10.{number}.0.0/16'\nthreshold = {threshold}\n\
             short = {{ device = 's{number}' }}\nlong = {{ device = 'l{number}' }}\n"
        )
    };
    let list = |count: usize| (0..count).map(|it| site(it, 100 + it)).collect::<String>();
    let same = site(50, 100) + &site(51, 40);
    parsed(&format!("lan = 'eth0'\n{}{same}", list(most)));
    let wrong = mistake(&format!("lan = 'eth0'\n{}", list(most + 1)));
    let last = format!("site.threshold = {}: ", 100 + most);
    assert!(
        wrong.contains(&last) && wrong.contains("30 different"),
        "{wrong}"
    );
}

#[test]
fn site_may_be_watched_otherwise() {
    let peers = |text: String| text.replace("device = 'd'\n", "device = 'd'\npeer = '192.0.2.1'\n");
    let own = "[site.health]\nkey_file = '/oslo.key'\ninterval_ms = 400\ndead_after_ms = 2000\nhold_down_s = 400\n";
    let config = parsed(&(peers(sites("")) + own));
    let [paris, oslo] = &config.by_site()[..] else {
        panic!("two were listed");
    };
    assert_eq!(paris.health, config.health);
    assert_eq!(oslo.health.interval.as_millis(), 400);
    assert_eq!(
        oslo.health.max_hold_down.as_secs(),
        400,
        "at least the hold-down"
    );
    assert_eq!(oslo.health.port, config.health.port);
    let files: Vec<_> = config.key_files().into_iter().collect();
    assert_eq!(files, [std::path::Path::new("/oslo.key")]);
    assert_eq!(parsed(&config.to_toml()), config);
    // Also where it is the only one.
    let text = peers(sites("")) + own;
    let (head, rest) = text.split_once("[[site]]").unwrap();
    let (_, oslo) = rest.split_once("[[site]]").unwrap();
    let alone = parsed(&format!("{head}[[site]]{oslo}"));
    assert_eq!(alone.by_site()[0].health.interval.as_millis(), 400);

    for (own, wrong) in [
        (
            "[site.health]\ninterval_ms = 400\n",
            "site.health.dead_after_ms",
        ),
        (
            "[site.health]\nmax_hold_down_s = 2\n",
            "site.health.max_hold_down_s = 2",
        ),
        (
            "[site.health]\nport = 9\n",
            "site.health.port = 9: unknown key",
        ),
    ] {
        let said = mistake(&(sites("") + own));
        assert!(said.contains(wrong), "{said}");
    }
    let unused = mistake(&(sites("") + "[site.health]\nkey_file = '/oslo.key'\n"));
    assert!(unused.contains("site.health.key_file"), "{unused}");
}
