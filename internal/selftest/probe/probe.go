// Package probe is what a self test runs in its VMs, and beside them on the host. It is a part of grange-guest.
package probe

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Name is the first argument of grange-guest that stands for a probe.
const Name = "selftest-probe"

// What a probe does.
const (
	Hold = "hold" // prints Up; answers each line "load N" with Loads' times; ends with its input
	Echo = "echo" // copies input to output, and prints the digest of it to the errors
	Exit = "exit" // exits with the next argument as status
	Kill = "kill" // ends by the signal that the next argument names
)

// Up is the first line of Hold.
const Up = "up"

// Kinds of load, in the order of their times on a line.
var Kinds = []string{"compute", "memory"}

// Main runs a probe and returns its exit status.
func Main(args []string) int {
	if len(args) == 0 {
		return 2
	}
	number := 0
	if len(args) > 1 {
		number, _ = strconv.Atoi(args[1])
	}
	switch args[0] {
	case Hold:
		return hold(os.Stdin, os.Stdout)
	case Echo:
		return echo(os.Stdin, os.Stdout, os.Stderr)
	case Exit:
		return number
	case Kill:
		syscall.Kill(os.Getpid(), syscall.Signal(number))
		time.Sleep(time.Minute)
	}
	return 2
}

func hold(in io.Reader, out io.Writer) int {
	fmt.Fprintln(out, Up)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n := 0
		if _, err := fmt.Sscanf(lines.Text(), "load %d", &n); err != nil {
			return 2
		}
		compute, memory := load(n)
		fmt.Fprintln(out, compute.Nanoseconds(), memory.Nanoseconds())
	}
	return 0
}

// Digest is how Echo writes the digest of what it read.
func Digest(sum []byte) string { return fmt.Sprintf("%x\n", sum) }

func echo(in io.Reader, out, errs io.Writer) int {
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, sum), in); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	io.WriteString(errs, Digest(sum.Sum(nil)))
	return 0
}

const (
	hashed = 2 << 20  // bytes
	sorted = 1 << 16  // numbers
	walked = 16 << 20 // bytes, far beyond the caches of page tables
	steps  = 1 << 17
	line   = 64 // bytes of a cache line
)

// load does the same work each time, n times: it hashes and sorts, then walks through memory in an order that nothing
// foresees.
func load(n int) (compute, memory time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, numbers := make([]byte, hashed), make([]uint64, sorted)
	next := shuffled(walked / line)
	sink := byte(0)
	for range n {
		began := time.Now()
		x := uint64(1)
		for i := range numbers {
			x = x*6364136223846793005 + 1442695040888963407
			numbers[i] = x >> 11
		}
		slices.Sort(numbers)
		text[0] = byte(numbers[0])
		sum := sha256.Sum256(text)
		sink ^= sum[0]
		compute += time.Since(began)
		began = time.Now()
		at := 0
		for range steps {
			at = int(next[at*(line/4)])
		}
		sink ^= byte(at)
		memory += time.Since(began)
	}
	runtime.KeepAlive(sink)
	return compute, memory
}

// shuffled is one ring through n cache lines, in the order of a linear congruential generator: n is a power of two.
func shuffled(n int) []uint32 {
	next := make([]uint32, n*(line/4))
	for i := range n {
		next[i*(line/4)] = uint32((i*1664525 + 1013904223) % n)
	}
	return next
}
