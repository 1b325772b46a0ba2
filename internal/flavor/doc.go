// Package flavor reads OpenStack's words for the shape of a VM (hw: properties of flavors, hw_ properties of images)
// and the recorded placement cases that come with them, and puts them as requests to the planner.
package flavor
