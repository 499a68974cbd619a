/* Stands in for NVIDIA's libnvidia-ml.so.1: it tells of the GPUs in the file that $NVML_STUB names.

   The first line is what nvmlInit returns. Then a line for each GPU: what its functions return, its UUID, name, bytes,
   whether it is cut into MIG slices, and the pids of processes on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define LIBRARY_NOT_FOUND 12
#define INSUFFICIENT_SIZE 7
#define MOST 16

typedef struct {
    int error, sliced, users;
    char uuid[96], name[96];
    unsigned long long total;
    unsigned int pids[MOST];
} Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;

static Gpu gpus[MOST];
static unsigned int count;

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    int result;
    char line[512];
    count = 0;
    if (!file)
        return LIBRARY_NOT_FOUND;
    if (!fgets(line, sizeof line, file) || sscanf(line, "%d", &result) != 1)
        result = LIBRARY_NOT_FOUND;
    while (count < MOST && fgets(line, sizeof line, file)) {
        Gpu *gpu = &gpus[count];
        int read = 0;
        memset(gpu, 0, sizeof *gpu);
        if (sscanf(line, "%d %95s %95s %llu %d%n", &gpu->error, gpu->uuid, gpu->name, &gpu->total, &gpu->sliced, &read) < 5)
            continue;
        for (char *at = line + read; gpu->users < MOST && sscanf(at, "%u%n", &gpu->pids[gpu->users], &read) == 1; at += read)
            gpu->users++;
        count++;
    }
    fclose(file);
    return result;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return error == 15 ? "GPU is lost" : error == 9 ? "Driver Not Loaded" : "an error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { return snprintf(text, size, "999.1") < 0; }
int nvmlDeviceGetCount_v2(unsigned int *found) { return *found = count, SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Gpu **gpu) { return *gpu = &gpus[index], (*gpu)->error; }
int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned int size) { return snprintf(text, size, "%s", gpu->uuid) < 0; }
int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned int size) { return snprintf(text, size, "%s", gpu->name) < 0; }
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) { return *memory = (Memory){gpu->total, gpu->total, 0}, SUCCESS; }
int nvmlDeviceGetMigMode(Gpu *gpu, unsigned int *now, unsigned int *next) { return *now = *next = gpu->sliced, SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned int *room, Process *found) {
    unsigned int given = *room;
    *room = gpu->users;
    if (given < *room)
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *room; i++)
        found[i] = (Process){gpu->pids[i], 1 << 20, 0, 0};
    return SUCCESS;
}
