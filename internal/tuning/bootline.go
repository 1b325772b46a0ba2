package tuning

import (
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// bootParam is one parameter of the kernel's command line. Value is "" for a bare word.
type bootParam struct{ name, value string }

// bootParams lists the parameters for the kernel: those behind "--" are for the first process.
func bootParams(line string) []bootParam {
	var out []bootParam
	for _, field := range strings.Fields(line) {
		if field == "--" {
			break
		}
		name, value, _ := strings.Cut(field, "=")
		out = append(out, bootParam{name, strings.Trim(value, `"`)})
	}
	return out
}

// sameParam reports whether two names are one to the kernel, which takes dashes for underscores.
func sameParam(a, b string) bool {
	return strings.ReplaceAll(a, "-", "_") == strings.ReplaceAll(b, "-", "_")
}

// bootValue is the last value of a parameter: the one that counts where it is given twice.
func bootValue(line, name string) (value string, ok bool) {
	for _, p := range bootParams(line) {
		if sameParam(p.name, name) {
			value, ok = p.value, true
		}
	}
	return value, ok
}

// nextLine is the command line of the next boot, or the present one where the next is not known.
func nextLine(k farm.Kernel) string {
	if k.BootFile != "" {
		return k.NextBoot
	}
	return k.Command
}

// bootPool is a request for huge pages on the command line.
type bootPool struct {
	size  farm.Bytes
	total int
	nodes map[int]int // by node, where the line says so: hugepages=0:24,1:24
}

const defaultHugePage = 2 * farm.MiB // of x86 where no default_hugepagesz is given

// bootPools reads the huge pages that a command line asks for.
func bootPools(line string) []bootPool {
	size := defaultHugePage
	if text, ok := bootValue(line, "default_hugepagesz"); ok {
		if n, err := farm.ParseBytes(text); err == nil {
			size = n
		}
	}
	var out []bootPool
	for _, p := range bootParams(line) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz":
			if n, err := farm.ParseBytes(p.value); err == nil {
				size = n
			}
		case "hugepages":
			if pool, ok := parseBootPool(p.value); ok {
				pool.size = size
				out = append(out, pool)
			}
		}
	}
	return out
}

const maxBootPages = 1 << 30

func parseBootPool(text string) (bootPool, bool) {
	var pool bootPool
	for part := range strings.SplitSeq(text, ",") {
		node, count, byNode := strings.Cut(part, ":")
		if !byNode {
			node, count = "0", part
		}
		id, err := strconv.Atoi(node)
		n, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil || id < 0 || n < 0 || n > maxBootPages {
			return bootPool{}, false
		}
		if byNode {
			if pool.nodes == nil {
				pool.nodes = map[int]int{}
			}
			pool.nodes[id] += n
		}
		pool.total += n
	}
	return pool, pool.total <= maxBootPages
}

// pageParams is what a command line says about huge pages, to compare two lines.
func pageParams(line string) string {
	var b strings.Builder
	for _, p := range bootParams(line) {
		switch p.name {
		case "hugepagesz", "default_hugepagesz", "hugepages":
			b.WriteString(p.name + "=" + p.value + " ")
		}
	}
	return b.String()
}

// pagesChangeAtBoot reports whether the next boot will reserve other huge pages than this one did. A file that says
// nothing of huge pages plans nothing: what the running kernel was given may come from elsewhere.
func pagesChangeAtBoot(k farm.Kernel) bool {
	return k.BootFile != "" && pageParams(k.NextBoot) != "" && pageParams(k.NextBoot) != pageParams(k.Command)
}
