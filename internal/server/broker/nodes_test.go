package broker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

func TestNodesOfHosts(t *testing.T) {
	host := func(name, node string) farm.Host {
		return farm.Host{ID: "id-" + name, Name: name, Facts: farm.Facts{BatchNode: node}}
	}
	for _, c := range []struct {
		name  string
		hosts []farm.Host
		nodes []string
		want  map[string]string
	}{
		{"by name, with and without the domain", []farm.Host{host("n1.example.org", ""), host("n2.example.org", "")},
			[]string{"n1", "n2.example.org", "n3"},
			map[string]string{"n1.example.org": "n1", "n2.example.org": "n2.example.org"}},
		{"as configured", []farm.Host{host("n1.example.org", "rack7-03")}, []string{"n1", "rack7-03"},
			map[string]string{"n1.example.org": "rack7-03"}},
		{"its own name, configured", []farm.Host{host("n1.example.org", "n1")}, []string{"n1"},
			map[string]string{"n1.example.org": "n1"}},
		{"a node that is not there", []farm.Host{host("n1", "other")}, []string{"n1"},
			map[string]string{"n1": "n1"}},
		{"a node that another host claims", []farm.Host{host("n1", "other"), host("b", "n1")}, []string{"n1"},
			map[string]string{"b": "n1"}},
		{"the node of another host", []farm.Host{host("evil", "n2"), host("n2.example.org", "")}, []string{"n2", "evil"},
			map[string]string{"n2.example.org": "n2", "evil": "evil"}},
		{"two claim one node", []farm.Host{host("a", "x"), host("b", "x")}, []string{"x"}, map[string]string{}},
		{"exchanged names", []farm.Host{host("a", "b"), host("b", "a")}, []string{"a", "b"},
			map[string]string{"a": "b", "b": "a"}},
	} {
		var nodes []batch.Node
		for _, name := range c.nodes {
			nodes = append(nodes, batch.Node{Name: name})
		}
		got := map[string]string{}
		for id, n := range nodesOf(c.hosts, nodes) {
			got[id[len("id-"):]] = n.Name
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
