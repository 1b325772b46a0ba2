package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// thisMachine reads what a reader of the figures wants to know of this machine.
func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), Model: valueIn("/proc/cpuinfo", "model name", ":"),
		System: strings.Trim(valueIn("/etc/os-release", "PRETTY_NAME", "="), `"`)}
	var memory unix.Sysinfo_t
	if unix.Sysinfo(&memory) == nil {
		m.MemoryGiB = int(memory.Totalram * uint64(memory.Unit) >> 30)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// valueIn is the value of the first line of a file with a key; "" without one.
func valueIn(file, key, separator string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
