//! Advice for a function whose every site is single-stepped: a neighbour of it that takes a cheaper probe.

use crate::{
    elf::{FunctionSymbol, Functions},
    probe::site::{self, FunctionCode, SiteKind},
    units::{Nanos, VirtualAddress},
};

/// Calls that are looked at; where there are more, nothing is said.
const LOOKED_AT: usize = 64;

/// Finds neighbours in one file.
pub(super) struct Neighbours<'a> {
    /// The file's functions.
    pub(super) functions: &'a Functions,
    /// What a probe costs, by kind.
    pub(super) cost: &'a dyn Fn(SiteKind) -> Nanos,
}

impl Neighbours<'_> {
    /// What to slow down in a function's place, and when that is the same. `None`: nothing is known.
    pub(super) fn advice(&self, function: &FunctionSymbol, code: &FunctionCode<'_>) -> Option<String> {
        let calls = code.map.direct_calls()?;
        let caller_of = |entry| self.only(calls.of(entry));
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

    /// The one function that all of these addresses lie in.
    fn only(&self, addresses: impl Iterator<Item = VirtualAddress>) -> Option<&FunctionSymbol> {
        let addresses: Vec<_> = addresses.take(LOOKED_AT + 1).collect();
        let first = self.functions.containing(*addresses.first()?)?;
        let is_first = |address: &VirtualAddress| {
            self.functions.containing(*address).is_some_and(|function| function.address == first.address)
        };
        (addresses.len() <= LOOKED_AT && addresses.iter().all(is_first)).then_some(first)
    }

    /// What a probe on a function costs, if it is not single-stepped.
    fn floor(&self, function: &FunctionSymbol, beside: &FunctionCode<'_>) -> Option<Nanos> {
        let code = FunctionCode { entry: function.address, size: Some(function.size), ..*beside };
        let site = site::choose(&code, self.cost).ok()?;
        (site.kind != SiteKind::SingleStep).then(|| (self.cost)(site.kind))
    }
}
