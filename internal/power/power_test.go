package power

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tree writes files below a /sys.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	put(t, sys, files)
	return sys
}

func put(t *testing.T, sys string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(sys, "class", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// zones are those that an Intel Xeon has: core is a part of the package.
func zones(pkg, dram, core string) map[string]string {
	return map[string]string{
		"powercap/intel-rapl:0/name": "package-0", "powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
		"powercap/intel-rapl:0/energy_uj": pkg,
		"powercap/intel-rapl:0:0/name":    "core", "powercap/intel-rapl:0:0/max_energy_range_uj": "262143328850",
		"powercap/intel-rapl:0:0/energy_uj": core,
		"powercap/intel-rapl:0:1/name":      "dram", "powercap/intel-rapl:0:1/max_energy_range_uj": "65712999613",
		"powercap/intel-rapl:0:1/energy_uj": dram,
	}
}

// TestRAPL: processors and memory add up, parts of a processor do not, and a counter may begin anew meanwhile.
func TestRAPL(t *testing.T) {
	sys := tree(t, zones("262143000000", "1000000", "5"))
	m := Find(sys)
	if m == nil || len(m.zones) != 2 {
		t.Fatalf("%+v", m)
	}
	began := time.Now()
	from, err := m.Read(began)
	if err != nil {
		t.Fatal(err)
	}
	put(t, sys, zones("199671150", "21000000", "9000000000"))
	to, err := m.Read(began.Add(2 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if w := m.Watts(from, to); math.Abs(w-110) > 0.001 { // 200 J and 20 J in 2 s
		t.Errorf("%v W", w)
	}
	if w := m.Watts(to, to); w != 0 {
		t.Errorf("%v W in no time", w)
	}
}

// TestPlatform: what counts the whole platform is taken alone.
func TestPlatform(t *testing.T) {
	files := zones("1", "1", "1")
	files["powercap/intel-rapl:1/name"] = "psys"
	files["powercap/intel-rapl:1/max_energy_range_uj"], files["powercap/intel-rapl:1/energy_uj"] = "9", "1"
	if m := Find(tree(t, files)); m == nil || len(m.zones) != 1 || m.Source != "RAPL, of the platform" {
		t.Errorf("%+v", m)
	}
}

// TestPowerMeter: that of the host itself comes first; a meter of a device is none.
func TestPowerMeter(t *testing.T) {
	files := zones("1", "1", "1")
	files["hwmon/hwmon0/name"], files["hwmon/hwmon0/power1_average"] = "amdgpu", "9000000"
	files["hwmon/hwmon3/name"], files["hwmon/hwmon3/power1_average"] = "power_meter", "210000000"
	sys := tree(t, files)
	m := Find(sys)
	if m == nil {
		t.Fatal("none is found")
	}
	end := m.Watch()
	put(t, sys, map[string]string{"hwmon/hwmon3/power1_average": "230000000"})
	if w := end(); w != 220 {
		t.Errorf("%v W", w)
	}
	end = m.Watch()
	if err := os.RemoveAll(filepath.Join(sys, "class")); err != nil {
		t.Fatal(err)
	}
	if w := end(); w != 0 {
		t.Errorf("%v W of a meter that is gone", w)
	}
}

func TestNone(t *testing.T) {
	for name, files := range map[string]map[string]string{"nothing": nil,
		"not to be read": {"powercap/intel-rapl:0/name": "package-0", "powercap/intel-rapl:0/max_energy_range_uj": "9"},
		"nonsense":       {"hwmon/hwmon0/name": "power_meter", "hwmon/hwmon0/power1_average": "much"}} {
		m := Find(tree(t, files))
		if m != nil {
			t.Errorf("%s: %+v", name, m)
		}
		if w := m.Watch()(); w != 0 {
			t.Errorf("%s: %v W", name, w)
		}
	}
}
