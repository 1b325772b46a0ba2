package slurm

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// who is behind a reason as scontrol shows it: " [root@2026-11-21T08:00:00]".
var who = lazyregexp.New(` \[[^\]\s]+@[^\]\s]+\]$`)

// parseNodes reads `scontrol --oneliner show nodes`: one line a node, KEY=VALUE with blanks between; Reason is the last
// that may hold blanks.
func parseNodes(text string) ([]batch.Node, error) {
	var nodes []batch.Node
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line == "No nodes in the system" {
			continue
		}
		line, reason, _ := strings.Cut(line, " Reason=")
		reason, _, _ = strings.Cut(reason, " Comment=") // behind the reason from 23.02 on
		v := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			if key, value, ok := strings.Cut(word, "="); ok && v[key] == "" {
				v[key] = value
			}
		}
		cpus, err := strconv.Atoi(v["CPUTot"])
		used, err2 := strconv.Atoi(v["CPUAlloc"])
		memory, err3 := strconv.ParseInt(v["RealMemory"], 10, 64)
		if err := errors.Join(err, err2, err3); err != nil || v["NodeName"] == "" {
			return nil, batch.Garbled(farm.Slurm, "scontrol show nodes",
				errors.Join(err, errors.New(strconv.Quote(line))))
		}
		n := batch.Node{Name: v["NodeName"], CPUs: cpus, Free: max(cpus-used, 0), Memory: farm.Bytes(memory) * farm.MiB}
		n.State, n.Closed = nodeState(v["State"], used)
		if n.State != batch.NodeIdle && n.State != batch.NodeBusy {
			n.Free = 0
		}
		if n.Closed || n.State == batch.NodeDown {
			n.Reason, n.Ours = batch.OurReason(who.ReplaceAllString(reason, ""))
			n.Ours = n.Ours && n.Closed
		}
		n.Features = list(cmp.Or(v["ActiveFeatures"], v["AvailableFeatures"]))
		n.Queues = list(v["Partitions"])
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b batch.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

func list(text string) []string {
	if none(text) == "" {
		return nil
	}
	l := strings.Split(text, ",")
	slices.Sort(l)
	return l
}

// nodeState reads IDLE+DRAIN, DOWN*+CLOUD, IDLE+CLOUD+POWERED_DOWN. Signs behind a word are flags of older releases: *
// does not answer, ~ has no power.
func nodeState(text string, used int) (state batch.NodeState, closed bool) {
	flags := map[string]bool{}
	for word := range strings.SplitSeq(text, "+") {
		name := strings.TrimRight(word, "*~#!%$@^-")
		flags[name] = true
		flags["NOT_RESPONDING"] = flags["NOT_RESPONDING"] || strings.Contains(word, "*")
		flags["POWERED_DOWN"] = flags["POWERED_DOWN"] || strings.Contains(word, "~")
	}
	closed = flags["DRAIN"] || flags["FAIL"]
	switch {
	case flags["POWERED_DOWN"], flags["POWERING_DOWN"], flags["FUTURE"]:
		return batch.NodeOff, closed
	case flags["DOWN"], flags["ERROR"], flags["UNKNOWN"], flags["NOT_RESPONDING"], flags["INVALID_REG"]:
		return batch.NodeDown, closed
	case closed:
		return batch.NodeClosed, true
	case used > 0, flags["ALLOCATED"], flags["MIXED"], flags["COMPLETING"]:
		return batch.NodeBusy, false
	}
	return batch.NodeIdle, false
}
