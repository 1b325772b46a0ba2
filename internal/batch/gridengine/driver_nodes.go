package gridengine

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// Nodes are the execution hosts that have queues.
func (d *Driver) Nodes(ctx context.Context) ([]batch.Node, error) {
	nodes, _, err := d.nodes(ctx)
	return nodes, err
}

// nodes also tells which hosts we closed, and why.
func (d *Driver) nodes(ctx context.Context) ([]batch.Node, map[string]string, error) {
	out, err := d.cell.Qconf(ctx, "-srqs")
	if err != nil && !farm.IsCode(err, farm.CodeQconf) { // there are none
		return nil, nil, err
	}
	quotas := parseQuotas(out)
	if out, err = d.command(ctx, "qhost", "-q", "-xml", "-F", "slots,mem_total,vmimages"); err != nil {
		return nil, nil, err
	}
	nodes, err := parseNodes(out, quotas)
	if err != nil {
		return nil, nil, batch.Garbled(farm.GridEngine, "qhost", err)
	}
	return nodes, quotas, nil
}

func (d *Driver) node(ctx context.Context, host string) (batch.Node, error) {
	nodes, err := d.Nodes(ctx)
	if err != nil {
		return batch.Node{}, err
	}
	for _, n := range nodes {
		if n.Name == host {
			return n, nil
		}
	}
	return batch.Node{}, batch.NoNode(farm.GridEngine, host)
}

type qhostValue struct {
	Name      string `xml:"name,attr"`
	Dominance string `xml:"dominance,attr"`
	Value     string `xml:",chardata"`
}

func parseNodes(text string, closed map[string]string) ([]batch.Node, error) {
	var list struct {
		XMLName xml.Name `xml:"qhost"`
		Hosts   []struct {
			Name      string       `xml:"name,attr"`
			Resources []qhostValue `xml:"resourcevalue"`
			Queues    []struct {
				Name   string       `xml:"name,attr"`
				Values []qhostValue `xml:"queuevalue"`
			} `xml:"queue"`
		} `xml:"host"`
	}
	if err := readXML(text, &list); err != nil {
		return nil, err
	}
	var nodes []batch.Node
	for _, h := range list.Hosts {
		if h.Name == "global" || len(h.Queues) == 0 {
			continue
		}
		n := batch.Node{Name: h.Name}
		used, disabled, down := 0, 0, 0
		for _, q := range h.Queues {
			v := map[string]string{}
			for _, value := range q.Values {
				v[value.Name] = value.Value
			}
			slots, err := strconv.Atoi(v["slots"])
			if err != nil {
				return nil, fmt.Errorf("slots of %s@%s: %w", q.Name, h.Name, err)
			}
			taken, err := strconv.Atoi(v["slots_used"])
			if err != nil {
				return nil, fmt.Errorf("used slots of %s@%s: %w", q.Name, h.Name, err)
			}
			reserved, _ := strconv.Atoi(v["slots_resv"])
			n.Queues = append(n.Queues, q.Name)
			n.CPUs += slots
			used += taken
			state := v["state_string"]
			if state == "" {
				n.Free += max(slots-taken-reserved, 0)
			}
			switch {
			case strings.Contains(state, "d"):
				disabled++
			case strings.ContainsAny(state, "uE"):
				down++
			}
			if strings.Contains(state, "u") {
				down = len(h.Queues) // it is the host that does not answer
			}
			if strings.Contains(state, "E") && n.Reason == "" {
				n.Reason = "queue " + q.Name + "@" + h.Name + " is in error"
			}
		}
		for _, r := range h.Resources {
			switch {
			case r.Name == "slots" && r.Dominance == "hc": // those of all its queues that are left
				left, err := strconv.ParseFloat(r.Value, 64)
				if err != nil {
					return nil, fmt.Errorf("slots of %s: %w", h.Name, err)
				}
				n.CPUs, n.Free = min(n.CPUs, max(int(left), 0)+used), min(n.Free, max(int(left), 0))
			case r.Name == "mem_total":
				var err error
				if n.Memory, err = allotment.GridEngineSize(r.Value); err != nil {
					return nil, fmt.Errorf("memory of %s: %w", h.Name, err)
				}
			case r.Name == "vmimages" && r.Value != "none":
				n.Features = strings.FieldsFunc(r.Value, func(c rune) bool { return c == ',' })
			}
		}
		reason, ours := closed[h.Name]
		byOthers := disabled == len(h.Queues)
		n.Closed, n.Ours = ours || byOthers, ours && !byOthers
		switch {
		case byOthers:
			n.Reason = "all its queues are disabled"
		case ours:
			n.Reason, _ = batch.OurReason(reason)
		}
		switch {
		case down+disabled >= len(h.Queues) && down > 0:
			n.State = batch.NodeDown
			n.Reason = cmp.Or(n.Reason, "its daemon does not answer")
		case n.Closed:
			n.State, n.Free = batch.NodeClosed, 0
		case used > 0:
			n.State = batch.NodeBusy
		default:
			n.State = batch.NodeIdle
		}
		if n.State == batch.NodeDown {
			n.Free = 0
		}
		if n.State == batch.NodeIdle || n.State == batch.NodeBusy {
			n.Reason = ""
		}
		slices.Sort(n.Queues)
		slices.Sort(n.Features)
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b batch.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// quotaPrefix begins the names of the resource quota sets that close hosts.
const quotaPrefix = "grange_"

func quotaName(host string) string { return quotaPrefix + host }

func quotaText(host, reason string) string {
	return fmt.Sprintf("{\n   name         %s\n   description  %s\n   enabled      TRUE\n   limit        hosts {%s} "+
		"to slots=0\n}\n", quotaName(host), escape(reason), host)
}

// escape keeps a text through a description of Grid Engine, which folds blanks and trips over brackets.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if strings.IndexByte("%{},#\"\\=", c) >= 0 || c < ' ' || c == ' ' && i > 0 && text[i-1] == ' ' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// parseQuotas finds the hosts that we closed, and the reasons. A set that an administrator has switched off closes
// nothing.
func parseQuotas(text string) map[string]string {
	closed := map[string]string{}
	for block := range strings.SplitSeq(text, "\n}") {
		v := ParseSettings(block).Values // lines that are too long go on behind a backslash
		host, ours := strings.CutPrefix(v["name"], quotaPrefix)
		if !ours || !strings.EqualFold(v["enabled"], "TRUE") {
			continue
		}
		reason, err := url.PathUnescape(v["description"])
		if err != nil {
			reason = v["description"]
		}
		closed[host] = reason
	}
	return closed
}
