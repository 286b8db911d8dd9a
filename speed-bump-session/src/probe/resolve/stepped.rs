//! Advice for a function whose sites are all single-stepped: another function whose probe is cheaper.

use crate::{
    elf::{FunctionSymbol, Functions},
    probe::site::{self, FunctionCode, SiteKind},
    units::{Nanos, VirtualAddress},
};

/// The most calls that we check. If there are more, there is no advice.
const LOOKED_AT: usize = 64;

/// Finds neighbours in one file.
pub(super) struct Neighbours<'a> {
    /// The file's functions.
    pub(super) functions: &'a Functions,
    /// The cost of a probe, by kind.
    pub(super) cost: &'a dyn Fn(SiteKind) -> Nanos,
}

impl Neighbours<'_> {
    /// Which function to slow down instead, and under which condition that has the same effect. `None` if we
    /// know none.
    pub(super) fn advice(&self, function: &FunctionSymbol, code: &FunctionCode<'_>) -> Option<String> {
        let calls = code.map.direct_calls()?;
        let caller_of = |entry| self.only(calls.callers(entry));
        if let Some(caller) = caller_of(function.address).filter(|caller| caller.address != function.address)
            && let Some(floor) = self.floor(caller, code)
        {
            return Some(format!(
                "`{}` is the only function of this file that calls it directly, and takes a probe with a \
                 floor of {floor}: slow that down if it calls this one once",
                caller.names.canonical().as_str(),
            ));
        }
        let end = VirtualAddress(function.address.0.saturating_add(function.size));
        let callee = self.only(calls.from(function.address..end))?;
        let is_its_own = caller_of(callee.address)?.address == function.address;
        let floor = self.floor(callee, code).filter(|_| is_its_own && callee.address != function.address)?;
        Some(format!(
            "of the functions of this file it calls `{}` alone, which no other calls directly, and which \
             takes a probe with a floor of {floor}: slow that down if it is called once in each call",
            callee.names.canonical().as_str(),
        ))
    }

    /// The function that contains all of these addresses; `None` if there are several.
    fn only(&self, addresses: impl Iterator<Item = VirtualAddress>) -> Option<&FunctionSymbol> {
        let addresses: Vec<_> = addresses.take(LOOKED_AT + 1).collect();
        let first = self.functions.containing(*addresses.first()?)?;
        let is_first = |address: &VirtualAddress| {
            self.functions.containing(*address).is_some_and(|function| function.address == first.address)
        };
        (addresses.len() <= LOOKED_AT && addresses.iter().all(is_first)).then_some(first)
    }

    /// The cost of a probe on a function; `None` if the kernel single-steps it.
    fn floor(&self, function: &FunctionSymbol, beside: &FunctionCode<'_>) -> Option<Nanos> {
        let code = FunctionCode { entry: function.address, size: Some(function.size), ..*beside };
        let site = site::choose(&code, self.cost).ok()?;
        (site.kind != SiteKind::SingleStep).then(|| (self.cost)(site.kind))
    }
}
