package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// HostsBriefAfter is a page of HostsBrief: those whose names are behind one.
func (t hostRows) HostsBriefAfter(cell, name string, limit int) (hosts []farm.Host, err error) {
	where, args := "name > $1 ORDER BY name LIMIT $2", []any{name, limit}
	if cell != "" {
		where, args = "name > $1 AND cell = $3 ORDER BY name LIMIT $2", append(args, cell)
	}
	err = t.each(addTo(&hosts), "SELECT "+hostBrief+" FROM hosts WHERE "+where, args...)
	return hosts, err
}

// HostsCalled are those of HostsBrief whose name or ID is one of refs, each once.
func (t hostRows) HostsCalled(refs []string) (hosts []farm.Host, err error) {
	for _, column := range []string{"name", "id"} {
		if err := t.eachOf(refs, addTo(&hosts),
			"SELECT "+hostBrief+" FROM hosts WHERE "+column+" IN (%s)"); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(hosts, func(a, b farm.Host) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(hosts, func(a, b farm.Host) bool { return a.ID == b.ID }), nil
}

// HostsBriefOf are those of HostsBrief that have one of some IDs, in any order.
func (t hostRows) HostsBriefOf(ids []string) (hosts []farm.Host, err error) {
	err = t.eachOf(ids, addTo(&hosts), "SELECT "+hostBrief+" FROM hosts WHERE id IN (%s)")
	return hosts, err
}

// addTo reads rows of hosts into a list.
func addTo(hosts *[]farm.Host) func(scanner) error {
	return func(r scanner) error {
		h, err := scanHost(r)
		*hosts = append(*hosts, h)
		return err
	}
}

// AddFacts gives hosts that were read briefly their Facts and Kind. One that is gone has none.
func (t hostRows) AddFacts(hosts []farm.Host) error {
	facts := make(map[string]farm.Facts, len(hosts))
	err := t.eachOf(hostIDs(hosts), func(r scanner) error {
		var id, text string
		var f farm.Facts
		if err := r.Scan(&id, &text); err != nil {
			return err
		}
		err := decode(text, &f)
		facts[id] = f
		return err
	}, "SELECT id, facts FROM hosts WHERE id IN (%s)")
	for i, h := range hosts {
		hosts[i].Facts = facts[h.ID]
		hosts[i].Kind = hosts[i].Facts.Kind
	}
	return err
}

func hostIDs(hosts []farm.Host) []string {
	ids := make([]string, len(hosts))
	for i, h := range hosts {
		ids[i] = h.ID
	}
	return ids
}

// atOnce is how many values one query of eachOf looks for.
const atOnce = 100

// marks are the places of so many values. A query for fewer repeats one of them: its text is the same for all, and need
// not be read anew.
var marks = func() string {
	var all []string
	for n := range atOnce {
		all = append(all, fmt.Sprintf("$%d", n+1))
	}
	return strings.Join(all, ", ")
}()

// eachOf calls read with every row of which a column is one of values: text has %s for them. They come in no order.
func (t *sqlTx) eachOf(values []string, read func(scanner) error, text string) error {
	text = fmt.Sprintf(text, marks)
	for part := range slices.Chunk(values, atOnce) {
		args := make([]any, atOnce)
		for i := range args {
			args[i] = part[min(i, len(part)-1)]
		}
		if err := t.each(read, text, args...); err != nil {
			return err
		}
	}
	return nil
}
