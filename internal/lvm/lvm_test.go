package lvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// What vgs and lvs of LVM 2.03.16 print on a host with a volume group vg, its thin pool, a thin and a thick volume of
// ours, a root volume of somebody else's, and one whose name is like ours.
const (
	groups = `  { "report": [ { "vg": [
	{"vg_name":"vg", "vg_size":"10733223936", "vg_free":"3217031168"} ] } ] }`
	logical = `  { "report": [ { "lv": [
	{"lv_name":"pool", "vg_name":"vg", "pool_lv":"", "lv_size":"5368709120", "lv_attr":"twi-aotz--", "lv_tags":"",
	 "data_percent":"25.00", "metadata_percent":"11.23"},
	{"lv_name":"grange.grange-1.scratch", "vg_name":"vg", "pool_lv":"pool", "lv_size":"1073741824",
	 "lv_attr":"Vwi-aotz--", "lv_tags":"grange,grange.owner=A,grange.vm=grange-1", "data_percent":"50.00",
	 "metadata_percent":""},
	{"lv_name":"grange.grange-2.swap", "vg_name":"vg", "pool_lv":"", "lv_size":"536870912", "lv_attr":"-wi-a-----",
	 "lv_tags":"grange.vm=grange-2,grange.owner=B,grange", "data_percent":"", "metadata_percent":""},
	{"lv_name":"grange.grange-3.scratch", "vg_name":"vg", "pool_lv":"", "lv_size":"1073741824", "lv_attr":"-wi-a-----",
	 "lv_tags":"mine", "data_percent":"", "metadata_percent":""},
	{"lv_name":"root", "vg_name":"vg", "pool_lv":"", "lv_size":"1073741824", "lv_attr":"-wi-ao----", "lv_tags":"",
	 "data_percent":"", "metadata_percent":""} ] } ] }`
)

func TestParse(t *testing.T) {
	r, err := parse([]byte(groups), []byte(logical))
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Volumes: []Volume{
		{Name: "grange.grange-1.scratch", Group: "vg", Pool: "pool", Size: farm.GiB, Used: farm.GiB / 2, Owner: "A",
			VM: "grange-1", Open: true},
		{Name: "grange.grange-2.swap", Group: "vg", Size: 512 * farm.MiB, Used: 512 * farm.MiB, Owner: "B",
			VM: "grange-2"}},
		Spaces: map[Place]Space{{"vg", ""}: {Size: 10733223936, Free: 3217031168},
			{"vg", "pool"}: {Size: 5 * farm.GiB, Free: 5*farm.GiB - 5*farm.GiB/4, Metadata: 11.23}}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v", r)
	}
	for place, missing := range map[Place]string{{"vg", ""}: "", {"vg", "pool"}: "", {"other", ""}: "volume group other",
		{"vg", "root"}: "thin pool vg/root"} {
		err := r.Has(place)
		if missing == "" && err != nil || missing != "" && (err == nil || !strings.Contains(err.Error(), missing)) {
			t.Errorf("%v: %v", place, err)
		}
	}
	if _, err := parse([]byte("x"), []byte(logical)); !farm.IsCode(err, CodeVolumeTool) {
		t.Error(err)
	}
	if empty, err := parse([]byte(`{"report":[{"vg":[]}]}`), []byte(`{"report":[{"lv":[]}]}`)); err != nil ||
		len(empty.Spaces) > 0 || len(empty.Volumes) > 0 {
		t.Errorf("%+v, %v", empty, err)
	}
}

// recorded is an LVM that notes what it is told, and fails as it is told.
func recorded(fail error) (*LVM, *[]string) {
	var lines []string
	return &LVM{run: func(_ context.Context, args ...string) ([]byte, error) {
		lines = append(lines, strings.Join(args, " "))
		return nil, fail
	}}, &lines
}

// TestRemoveByTag: what is removed is chosen by its owner's tag, never by its name alone.
func TestRemoveByTag(t *testing.T) {
	l, lines := recorded(nil)
	v := Volume{Name: "grange.vm.scratch", Group: "vg", Owner: "A", VM: "vm"}
	if err := l.Remove(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	const want = "lvremove --yes --quiet --quiet --autobackup n --select " +
		"lv_name=grange.vm.scratch && lv_tags=grange && lv_tags=grange.owner=A vg"
	if len(*lines) != 1 || (*lines)[0] != want {
		t.Errorf("%q", *lines)
	}
	for _, bad := range []Volume{{}, {Name: "a b", Group: "vg", Owner: "A", VM: "vm"},
		{Name: "x", Group: "vg", Owner: "", VM: "vm"}, {Name: "x", Group: "-f", Owner: "A", VM: "vm"},
		{Name: "x", Group: "vg", Owner: "A || lv_name!=x", VM: "vm"}} {
		if err := l.Remove(t.Context(), bad); err == nil {
			t.Errorf("%+v is removed", bad)
		}
	}
	if len(*lines) != 1 {
		t.Errorf("%q", *lines)
	}
}

func TestCreate(t *testing.T) {
	l, lines := recorded(nil)
	for _, at := range []Place{{"vg", ""}, {"vg", "pool"}} {
		v, err := l.Create(t.Context(), at, "grange.vm.swap", farm.GiB, "A", "vm")
		if err != nil || v.Path() != "/dev/vg/grange.vm.swap" || v.Place() != at {
			t.Errorf("%+v, %v", v, err)
		}
	}
	for i, want := range []string{"--size 1073741824b", "--virtualsize 1073741824b --thinpool pool"} {
		if !strings.Contains((*lines)[i], want) || !strings.Contains((*lines)[i], "--addtag grange.owner=A") ||
			!strings.Contains((*lines)[i], "--addtag grange.vm=vm") {
			t.Errorf("%q", (*lines)[i])
		}
	}
}

// TestErrors: each way in which LVM fails has its code, and what to try.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want farm.Code
	}{
		{fmt.Errorf("lvm: %w", fs.ErrNotExist), CodeNoVolumes},
		{errors.New(`lvm lvcreate: exit status 5: Volume group "vg" has insufficient free space (1 extents): 2 required.`),
			farm.CodeDiskFull},
		{errors.New("lvm lvcreate: exit status 5: Device /dev/sdb excluded by a filter."), CodeVolumeTool},
		{context.DeadlineExceeded, CodeVolumeTool},
	} {
		l, _ := recorded(c.err)
		var e *farm.Error
		if _, err := l.Create(t.Context(), Place{Group: "vg"}, "x", farm.GiB, "A", "vm"); !errors.As(err, &e) ||
			e.Code != c.want || e.Hint == "" {
			t.Errorf("%v: %v, want %s", c.err, err, c.want)
		}
	}
	l, _ := recorded(context.Canceled)
	if _, err := l.Read(t.Context()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
