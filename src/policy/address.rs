//! Addresses in the one form that they are judged in, and the ranges that are not the open internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::IpNet;

/// The address that a packet to `address` really goes to: IPv4 inside IPv6 is taken out, and the unspecified
/// address is the loopback one (Linux connects there, ip(7)).
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) => embedded(v6).map_or(address, |v4| canonical(IpAddr::V4(v4))),
    }
}

/// The IPv4 address that an IPv6 one carries: mapped and compatible (RFC 4291, 2.5.5), translated by NAT64
/// (RFC 6052), and 6to4 (RFC 3056), where the relay unpacks it.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let join = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(join(g, h)),
        // `::1` is the loopback address and no IPv4 address 0.0.0.1.
        [0, 0, 0, 0, 0, 0] if g != 0 => Some(join(g, h)),
        [0x2002, ..] => Some(join(b, c)),
        _ => None,
    }
}

/// Whether a (canonical) address is anything but global unicast: private, loopback, link-local (the metadata
/// services of clouds), shared, multicast, broadcast, documentation, reserved.
pub fn is_special(address: IpAddr) -> bool {
    let global = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000, // 2000::/3 is all that is assigned for it (RFC 4291)
    };
    !global || SPECIAL.iter().any(|range| range.contains(&address))
}

/// Whether a range lies inside one special range, so that a rule with it means that range.
pub(super) fn is_inside_special(range: &IpNet) -> bool {
    SPECIAL.iter().any(|special| special.contains(range))
}

/// Whether some special range lies inside this one.
pub(super) fn holds_special(range: &IpNet) -> bool {
    SPECIAL.iter().any(|special| range.contains(special))
}

/// Whether the address is the host's own loopback, in either family.
pub fn is_loopback(address: IpAddr) -> bool {
    LOOPBACKS.contains(&address)
}

pub(super) const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The ranges of IPv6 whose addresses are judged as IPv4: a rule with them would never match.
pub(super) fn is_translated(range: &IpNet) -> bool {
    matches!(range, IpNet::V6(v6) if embedded(v6.network()).is_some() && v6.prefix_len() >= 16)
}

/// IANA special-purpose address registries (RFC 6890 and its updates), multicast and reserved space, and what a cloud
/// has put elsewhere.
static SPECIAL: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        // Azure's WireServer: each machine there reaches its own, which gives out keys.
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::1/128",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ]
    .iter()
    .filter_map(|range| range.parse().ok())
    .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn every_range_of_the_table_parses() {
        assert_eq!(SPECIAL.len(), 27);
    }

    #[test]
    fn addresses_have_one_form() {
        for (given, meant) in [
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("64:ff9b::a9fe:a9fe", "169.254.169.254"),
            ("2002:7f00:1::", "127.0.0.1"),
            ("::10.0.0.1", "10.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::", "127.0.0.1"),
            ("::ffff:0.0.0.0", "127.0.0.1"),
            ("::1", "::1"),
            ("2606:4700::1111", "2606:4700::1111"),
        ] {
            assert_eq!(canonical(address(given)), address(meant), "{given}");
        }
    }

    #[test]
    fn only_global_unicast_is_not_special() {
        for special in [
            "10.1.2.3",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "100.100.100.200",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "4000::1",
            "64:ff9b:1::1",
            "2001::1",
        ] {
            assert!(is_special(canonical(address(special))), "{special}");
        }
        for global in ["1.1.1.1", "168.63.129.17", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"]
        {
            assert!(!is_special(address(global)), "{global}");
        }
    }
}
