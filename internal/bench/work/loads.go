package work

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	sorted  = 1 << 14   // numbers of 8 bytes
	matrix  = 96        // rows and columns: three fit into a cache of the second level
	arrays  = 8 << 20   // bytes of each of three: beyond a thread's part of the caches
	walked  = 32 << 20  // bytes: far beyond the caches of page tables
	hops    = 1 << 15   // through it
	line    = 64        // bytes of a cache line
	mapped  = 4 << 20   // bytes
	page    = 4096      // of x86 and most others
	million = 1_000_000 // of a unit
)

// leaf is the argument of a process that ends at once.
const leaf = "leaf"

func none() {}

func integer(seed int) (func() float64, func()) {
	numbers, text := make([]uint64, sorted), make([]byte, 8*sorted)
	x := uint64(seed) + 1
	return func() float64 {
		for i := range numbers {
			x = x*6364136223846793005 + 1442695040888963407
			numbers[i] = x >> 11
		}
		slices.Sort(numbers)
		for i, n := range numbers {
			binary.LittleEndian.PutUint64(text[8*i:], n)
		}
		sum := sha256.Sum256(text)
		x ^= uint64(sum[0])
		return float64(len(text)) / million
	}, none
}

func float(seed int) (func() float64, func()) {
	var a, b, c [matrix][matrix]float64
	for i := range a {
		for j := range a[i] {
			a[i][j], b[i][j] = float64(i+seed)/matrix, float64(j)/matrix
		}
	}
	return func() float64 {
		for i := range c {
			for k := range b {
				f := a[i][k]
				for j := range c[i] {
					c[i][j] += f * b[k][j]
				}
			}
		}
		a[0][0] = c[0][0] / (1 + c[0][0]) // it is needed, and stays small
		return 2 * matrix * matrix * matrix / million
	}, none
}

func triad(int) (func() float64, func()) {
	a, b, c := make([]float64, arrays/8), make([]float64, arrays/8), make([]float64, arrays/8)
	for i := range b {
		b[i], c[i] = float64(i), 1
	}
	return func() float64 {
		for i := range a {
			a[i] = b[i] + 3*c[i]
		}
		b[0] = a[0]
		return 3 * arrays / million
	}, none
}

// chase walks one ring through all lines, in the order of a linear congruential generator: their number is a power of
// two.
func chase(int) (func() float64, func()) {
	const n = walked / line
	next := make([]uint32, n*(line/4))
	for i := range n {
		next[i*(line/4)] = uint32((i*1664525 + 1013904223) % n)
	}
	at := 0
	return func() float64 {
		for range hops {
			at = int(next[at*(line/4)])
		}
		return float64(hops) / million
	}, none
}

// pages has the kernel make and drop page tables, as programs do that take much memory and give it back.
func pages(int) (func() float64, func()) {
	return func() float64 {
		text, err := unix.Mmap(-1, 0, mapped, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return 0
		}
		unix.Madvise(text, unix.MADV_NOHUGEPAGE)
		for i := 0; i < len(text); i += page {
			text[i] = 1
		}
		unix.Munmap(text)
		return mapped / page
	}, none
}

// forks starts this program, which ends at once.
func forks(int) (func() float64, func()) {
	own, err := os.Executable()
	return func() float64 {
		if err != nil || exec.Command(own, Name, leaf).Run() != nil {
			return 0
		}
		return 1
	}, none
}
