package pages

// navEntry is one page of the navigation.
type navEntry struct{ Name, Title, Path, Key string }

// navigation are the pages that people begin at, and the key that leads there behind a "g".
var navigation = []navEntry{
	{"vms", "VMs", "/vms", "v"},
	{"farm", "Farm", "/farm", "f"},
	{"jobs", "Jobs", "/jobs", "j"},
	{"projects", "Projects", "/projects", "p"},
	{"images", "Images", "/images", "i"},
	{"networks", "Networks", "/networks", "w"},
	{"why", "Why", "/why", "y"},
	{"audit", "Audit", "/audit", "a"},
	{"incidents", "Incidents", "/incidents", "t"},
	{"log", "Log", "/log", "l"},
}
