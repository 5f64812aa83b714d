//go:build !race

package partition

const underRace = false
