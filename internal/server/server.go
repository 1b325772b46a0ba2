// Package server is every action on the fleet, and the loops that keep it as wanted. It decides by policy and placement, acts on the
// store, and knows hosts by what they report. It never speaks HTTP.
package server
